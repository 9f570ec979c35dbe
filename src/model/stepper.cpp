#include "model/stepper.h"

#include <fmt/format.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/step_graph.h"

namespace cellar {

namespace {

// Shapes alternate: a prompt's ubatches, its rest, decoding at one length class and the next.
constexpr size_t kKeptGraphs = 8;

struct FreeThreads {
    void operator()(ggml_threadpool* threads) const { ggml_threadpool_free(threads); }
};

// The first operation of the graph that the backend cannot do; null if it can do all.
const ggml_tensor* first_unsupported(ggml_backend_t backend, ggml_cgraph* graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor* node = ggml_graph_node(graph, i);
        if (!ggml_backend_supports_op(backend, node)) {
            return node;
        }
    }
    return nullptr;
}

}  // namespace

struct Stepper::Impl {
    Impl(const Model& model, const Memory& memory, const StepperOptions& options)
        : model_(model),
          memory_(memory),
          max_ubatch_(std::min(options.max_ubatch, memory.config().n_cells)),
          flash_(options.flash != Flash::kOff) {}

    const Model& model_;
    const Memory& memory_;
    const uint32_t max_ubatch_;
    const bool flash_;

    // Freed from the last to the first: graphs, buffers, backend, its threads.
    std::unique_ptr<ggml_threadpool, FreeThreads> threads_;
    ggml_backend_ptr backend_;
    ggml_gallocr_ptr allocator_;
    std::vector<std::unique_ptr<StepGraph>> graphs_;  // last used first

    std::vector<uint32_t> rows_;   // of the last step: [n_outputs] in the ubatch
    std::vector<uint32_t> items_;  // of the last step: [n_outputs] in the batch
    StepperStats stats_;

    Result<void> start_threads(uint32_t n_threads);
    StepShape worst_shape() const;
    std::unique_ptr<StepGraph> build(const StepShape& shape) const;
    Result<void> allocate(StepGraph& graph);
    Result<void> reserve();
    Result<StepGraph*> graph_of(const StepShape& shape);
    Result<void> check_token(Token token) const;
    Result<void> find_outputs(const Batch& batch, const UbatchPlan& ubatch);
    Result<Logits> run(const Batch& batch, const UbatchPlan& ubatch);
};

Result<void> Stepper::Impl::start_threads(uint32_t n_threads) {
    ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(n_threads));
    backend_.reset(ggml_backend_cpu_init());
    threads_.reset(ggml_threadpool_new(&params));
    allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (!backend_ || !threads_ || !allocator_) {
        return fail(Code::kBackend, fmt::format("Cannot start {} compute threads.", n_threads));
    }
    ggml_backend_cpu_set_n_threads(backend_.get(), static_cast<int>(n_threads));
    ggml_backend_cpu_set_threadpool(backend_.get(), threads_.get());
    return {};
}

StepShape Stepper::Impl::worst_shape() const {
    StepShape shape{max_ubatch_, max_ubatch_, {}};
    for (uint32_t group = 0; group < memory_.cells().n_groups(); group++) {
        shape.attention.push_back(widest_shape(memory_, group, max_ubatch_));
    }
    return shape;
}

std::unique_ptr<StepGraph> Stepper::Impl::build(const StepShape& shape) const {
    auto graph = std::make_unique<StepGraph>(memory_, shape, flash_);
    graph->finish(model_.build(*graph));
    return graph;
}

// Lays the graph's tensors into the one buffer that all graphs share: only one runs at a time, and
// every step sets its inputs anew.
Result<void> Stepper::Impl::allocate(StepGraph& graph) {
    const size_t before = ggml_gallocr_get_buffer_size(allocator_.get(), 0);
    // Reserving first makes ggml lay out this graph, where it would take the last one's layout for
    // any graph with as many nodes.
    const bool done = ggml_gallocr_reserve(allocator_.get(), graph.graph()) &&
                      ggml_gallocr_alloc_graph(allocator_.get(), graph.graph());
    if (!done || ggml_gallocr_get_buffer_size(allocator_.get(), 0) != before) {
        graphs_.clear();  // they pointed into the buffer that was replaced
    }
    if (!done) {
        return fail(Code::kBackend,
                    fmt::format("Cannot allocate the compute buffer of a step of {} "
                                "tokens.",
                                graph.shape().n_tokens));
    }
    return {};
}

Result<void> Stepper::Impl::reserve() {
    auto graph = build(worst_shape());
    const ggml_tensor* missing = first_unsupported(backend_.get(), graph->graph());
    if (missing) {
        return fail(Code::kUnsupported, fmt::format("The backend {} cannot compute {} of {}.",
                                                    ggml_backend_name(backend_.get()),
                                                    ggml_op_desc(missing), missing->name));
    }
    return allocate(*graph);
}

Result<StepGraph*> Stepper::Impl::graph_of(const StepShape& shape) {
    auto found = std::find_if(graphs_.begin(), graphs_.end(),
                              [&](const auto& graph) { return graph->shape() == shape; });
    if (found == graphs_.end()) {
        auto graph = build(shape);
        if (auto allocated = allocate(*graph); !allocated) {
            return pass(std::move(allocated));
        }
        if (graphs_.size() == kKeptGraphs) {
            graphs_.pop_back();
        }
        stats_.graphs_built++;
        found = graphs_.insert(graphs_.end(), std::move(graph));
    }
    std::rotate(graphs_.begin(), found, found + 1);
    return graphs_.front().get();
}

Result<void> Stepper::Impl::check_token(Token token) const {
    if (token < 0 || static_cast<uint32_t>(token) >= model_.info().n_vocab) {
        return fail(Code::kInvalidArgument,
                    fmt::format("Token {} is not in the model's vocabulary of {}.", token,
                                model_.info().n_vocab));
    }
    return {};
}

Result<void> Stepper::Impl::find_outputs(const Batch& batch, const UbatchPlan& ubatch) {
    rows_.clear();
    items_.clear();
    for (uint32_t row = 0; row < ubatch.items.size(); row++) {
        const uint32_t item = ubatch.items[row];
        if (item >= batch.size()) {
            return fail(Code::kStale, "The plan was prepared for another batch.");
        }
        if (auto checked = check_token(batch.token(item)); !checked) {
            return checked;
        }
        if (batch.output(item)) {
            rows_.push_back(row);
            items_.push_back(item);
        }
    }
    return {};
}

Result<Logits> Stepper::Impl::run(const Batch& batch, const UbatchPlan& ubatch) {
    if (auto found = find_outputs(batch, ubatch); !found) {
        return pass(std::move(found));
    }
    StepShape shape{
        static_cast<uint32_t>(ubatch.items.size()), static_cast<uint32_t>(rows_.size()), {}};
    std::vector<Schedule> schedules;
    for (uint32_t group = 0; group < memory_.cells().n_groups(); group++) {
        schedules.push_back(make_schedule(memory_.cells(), ubatch, group));
        shape.attention.push_back(shape_of(schedules.back()));
    }
    auto graph = graph_of(shape);
    if (!graph) {
        return pass(std::move(graph));
    }
    (*graph)->set_inputs(batch, ubatch, rows_, schedules);
    const ggml_status status = ggml_backend_graph_compute(backend_.get(), (*graph)->graph());
    if (status != GGML_STATUS_SUCCESS) {
        return fail(Code::kBackend, fmt::format("Computing a step of {} tokens failed: {}.",
                                                shape.n_tokens, ggml_status_to_string(status)));
    }
    stats_.steps++;
    for (const Schedule& schedule : schedules) {
        stats_.attended_cells += schedule.attended_cells;
    }
    const uint32_t n_vocab = model_.info().n_vocab;
    std::span<const float> values;
    if (const ggml_tensor* logits = (*graph)->logits()) {
        values = {static_cast<const float*>(logits->data), size_t{n_vocab} * rows_.size()};
    }
    return Logits{values, items_, n_vocab};
}

Stepper::Stepper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
}
Stepper::~Stepper() = default;

Result<std::unique_ptr<Stepper>> Stepper::create(const Model& model, Memory& memory,
                                                 const StepperOptions& options) {
    if (options.n_threads < 1 || options.n_threads > GGML_MAX_N_THREADS) {
        return fail(Code::kInvalidArgument,
                    fmt::format("{} threads: at least 1 and at most {} can run.", options.n_threads,
                                GGML_MAX_N_THREADS));
    }
    if (options.max_ubatch < 1) {
        return fail(Code::kInvalidArgument, "A step needs room for at least 1 token.");
    }
    auto impl = std::make_unique<Impl>(model, memory, options);
    if (auto started = impl->start_threads(options.n_threads); !started) {
        return pass(std::move(started));
    }
    if (auto reserved = impl->reserve(); !reserved) {
        return pass(std::move(reserved));
    }
    return std::unique_ptr<Stepper>(new Stepper(std::move(impl)));
}

Result<void> Stepper::check(const Batch& batch) const {
    for (size_t i = 0; i < batch.size(); i++) {
        if (auto checked = impl_->check_token(batch.token(i)); !checked) {
            return checked;
        }
    }
    return {};
}

Result<Logits> Stepper::compute(const Batch& batch, const Plan& plan, size_t i) {
    if (!plan.open() || i != plan.committed()) {
        return fail(Code::kStale, fmt::format("Ubatch {} is not the next of an open plan.", i));
    }
    return impl_->run(batch, plan.ubatch(i));
}

const StepperStats& Stepper::stats() const {
    return impl_->stats_;
}

uint64_t Stepper::compute_bytes() const {
    return ggml_gallocr_get_buffer_size(impl_->allocator_.get(), 0);
}

}  // namespace cellar
