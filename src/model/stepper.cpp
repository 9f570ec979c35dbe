#include "model/stepper.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/graph_runner.h"
#include "model/key_turner.h"
#include "model/step_graph.h"

namespace cellar {

namespace {

// Shapes alternate: a prompt's ubatches, its rest, decoding at one length class and the next.
constexpr size_t kKeptGraphs = 8;

// Items that a step can have: each takes a cell, unless all groups are recurrent.
uint32_t most_items(const Memory& memory, uint32_t max_ubatch) {
    for (uint32_t group = 0; group < memory.cells().n_groups(); group++) {
        if (!memory.cells().kind(group).is_recurrent())
            return std::min(max_ubatch, memory.config().n_cells);
    }
    return max_ubatch;
}

}  // namespace

struct Stepper::Impl {
    Impl(const Model& model, Memory& memory, const StepperOptions& options, AttentionParts parts,
         std::unique_ptr<GraphRunner> runner)
        : model_(model),
          memory_(memory),
          max_ubatch_(most_items(memory, options.max_ubatch)),
          parts_(std::move(parts)),
          workspace_(options.n_threads),
          runner_(std::move(runner)) {}

    StepShape worst_shape(uint32_t n_tokens, RunShape runs) const;
    std::vector<StepShape> worst_shapes() const;
    RunShape runs_of(const UbatchPlan& ubatch) const;
    std::unique_ptr<StepGraph> build(const StepShape& shape);
    Result<void> reserve();
    Result<void> reserve(const StepShape& shape);
    bool attends(uint32_t group) const { return !memory_.cells().kind(group).is_recurrent(); }
    Result<void> allocate(ggml_cgraph* graph);
    Result<void> apply(std::span<const CellMove> moves);
    Result<void> apply_pending();
    Result<StepGraph*> graph_of(const StepShape& shape);
    Result<void> check_token(Token token) const;
    Result<void> check_positions(const Plan& plan) const;
    Result<void> find_outputs(const Batch& batch, const UbatchPlan& ubatch);
    Result<Logits> compute(const Batch& batch, const UbatchPlan& ubatch);
    Logits read(const StepGraph& graph);

    const Model& model_;
    Memory& memory_;
    const uint32_t max_ubatch_;
    const AttentionParts parts_;    // outlives the graphs,
    AttentionWorkspace workspace_;  // as this does

    std::unique_ptr<GraphRunner> runner_;
    std::vector<std::unique_ptr<StepGraph>> graphs_;  // laid out in runner_; last used first

    std::vector<uint32_t> rows_;   // of the last step: [n_outputs] in the ubatch
    std::vector<uint32_t> items_;  // of the last step: [n_outputs] in the batch
    std::vector<float> logits_;    // of the last step, where a device computed them
    StepperStats stats_;
};

// Of so many tokens, all with logits, over the whole pools.
StepShape Stepper::Impl::worst_shape(uint32_t n_tokens, RunShape runs) const {
    StepShape shape{n_tokens, n_tokens, {}, runs};
    for (const AttentionPart& part : parts_.parts) {
        shape.attention.push_back(widest_shape(memory_, part.group, n_tokens, part.options));
    }
    return shape;
}

// With states: one run of all tokens, and as many runs as there are states for, whose states take
// room as well.
std::vector<StepShape> Stepper::Impl::worst_shapes() const {
    if (!memory_.cells().has_recurrent()) return {worst_shape(max_ubatch_, {})};
    const uint32_t n_kept = memory_.cells().n_rollback() + 1;
    const uint32_t n_runs = std::clamp(memory_.config().n_states / n_kept, 1u, max_ubatch_);
    const uint32_t n_items = max_ubatch_ / n_runs;
    return {worst_shape(max_ubatch_, {1, std::min(max_ubatch_, n_kept)}),
            worst_shape(n_runs * n_items, {n_runs, std::min(n_items, n_kept)})};
}

RunShape Stepper::Impl::runs_of(const UbatchPlan& ubatch) const {
    for (uint32_t group = 0; group < ubatch.groups.size(); group++) {
        if (!attends(group))
            return {static_cast<uint32_t>(ubatch.runs.size()), ubatch.groups[group].n_states};
    }
    return {};
}

std::unique_ptr<StepGraph> Stepper::Impl::build(const StepShape& shape) {
    auto graph = std::make_unique<StepGraph>(memory_, shape, parts_, workspace_);
    graph->finish(model_.build(*graph));
    return graph;
}

Result<void> Stepper::Impl::reserve() {
    for (const StepShape& shape : worst_shapes()) {
        if (auto reserved = reserve(shape); !reserved) {
            return reserved;
        }
    }
    return {};
}

Result<void> Stepper::Impl::reserve(const StepShape& shape) {
    auto graph = build(shape);
    if (auto checked = runner_->check(graph->graph()); !checked) {
        return checked;
    }
    graph->reserve();
    return allocate(graph->graph());
}

Result<void> Stepper::Impl::allocate(ggml_cgraph* graph) {
    auto grown = runner_->allocate(graph);
    if (!grown || *grown) {
        graphs_.clear();
    }
    if (!grown) {
        return pass(std::move(grown));
    }
    return {};
}

// Moves that one graph can do.
Result<void> Stepper::Impl::apply(std::span<const CellMove> moves) {
    for (const CellMove& move : moves) {
        memory_.copy_cells(move);
    }
    const TurnGraph turn(model_, memory_, moves);
    if (turn.empty()) {
        return {};
    }
    if (auto allocated = allocate(turn.graph()); !allocated) {
        return allocated;
    }
    turn.set_inputs();
    return runner_->run(turn.graph());
}

Result<void> Stepper::Impl::apply_pending() {
    std::span<const CellMove> left = memory_.pending();
    while (!left.empty()) {
        const size_t n = moves_at_once(left);
        if (auto applied = apply(left.first(n)); !applied) {
            return applied;
        }
        left = left.subspan(n);
    }
    memory_.finish_moves();
    return {};
}

Result<StepGraph*> Stepper::Impl::graph_of(const StepShape& shape) {
    auto found = std::find_if(graphs_.begin(), graphs_.end(),
                              [&](const auto& graph) { return graph->shape() == shape; });
    if (found == graphs_.end()) {
        auto graph = build(shape);
        if (auto allocated = allocate(graph->graph()); !allocated) {
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

// Of all ubatches that are left, so that nothing of them is computed if one cannot be.
Result<void> Stepper::Impl::check_positions(const Plan& plan) const {
    const uint32_t n = model_.info().n_learned_pos;
    for (size_t i = plan.committed(); n > 0 && i < plan.size(); i++) {
        for (const Pos pos : plan.ubatch(i).positions) {
            if (pos < 0 || static_cast<uint32_t>(pos) >= n) {
                return fail(Code::kBadRange,
                            fmt::format("Position {} has no embedding: the model has {}.", pos, n));
            }
        }
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

Result<Logits> Stepper::Impl::compute(const Batch& batch, const UbatchPlan& ubatch) {
    if (auto found = find_outputs(batch, ubatch); !found) {
        return pass(std::move(found));
    }
    StepShape shape{static_cast<uint32_t>(ubatch.items.size()),
                    static_cast<uint32_t>(rows_.size()),
                    {},
                    runs_of(ubatch)};
    std::vector<AttentionPlan> plans;
    for (const AttentionPart& part : parts_.parts) {
        plans.push_back(plan_attention(memory_, ubatch, part.group, part.options));
        shape.attention.push_back(shape_of(plans.back()));
    }
    auto graph = graph_of(shape);
    if (!graph) {
        return pass(std::move(graph));
    }
    (*graph)->set_inputs(batch, ubatch, rows_, plans);
    if (auto computed = runner_->run((*graph)->graph()); !computed) {
        return pass(std::move(computed));
    }
    stats_.steps++;
    for (size_t i = 0; i < plans.size(); i++) {
        if (!parts_.leads(i)) continue;
        stats_.attended_cells += attended_cells(plans[i]);
        stats_.read_cells += read_cells(plans[i]);
    }
    return read(**graph);
}

// In host memory logits are read where they were computed.
Logits Stepper::Impl::read(const StepGraph& graph) {
    const uint32_t n_vocab = model_.info().n_vocab;
    if (!graph.logits()) {
        return Logits{{}, items_, n_vocab};
    }
    const size_t n = size_t{n_vocab} * rows_.size();
    if (ggml_backend_buffer_is_host(graph.logits()->buffer)) {
        return Logits{{static_cast<const float*>(graph.logits()->data), n}, items_, n_vocab};
    }
    logits_.resize(n);
    ggml_backend_tensor_get(graph.logits(), logits_.data(), 0, n * sizeof(float));
    return Logits{logits_, items_, n_vocab};
}

Stepper::Stepper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
}
Stepper::~Stepper() = default;

Result<std::unique_ptr<Stepper>> Stepper::create(const Model& model, Memory& memory,
                                                 const StepperOptions& options) {
    if (options.max_ubatch < 1) {
        return fail(Code::kInvalidArgument, "A step needs room for at least 1 token.");
    }
    auto parts =
        choose_attention(memory, options.attention,
                         {.flash = options.flash != Flash::kOff, .share = options.cascade});
    if (!parts) {
        return pass(std::move(parts));
    }
    auto runner = GraphRunner::create(options.n_threads, model.info().devices);
    if (!runner) {
        return pass(std::move(runner));
    }
    auto impl =
        std::make_unique<Impl>(model, memory, options, std::move(*parts), std::move(*runner));
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

Result<void> Stepper::apply_pending() {
    return impl_->apply_pending();
}

Result<Logits> Stepper::compute(const Batch& batch, const Plan& plan, size_t i) {
    if (!plan.open() || i != plan.committed()) {
        return fail(Code::kStale, fmt::format("Ubatch {} is not the next of an open plan.", i));
    }
    if (auto checked = impl_->check_positions(plan); !checked) {
        return pass(std::move(checked));
    }
    return impl_->compute(batch, plan.ubatch(i));
}

const StepperStats& Stepper::stats() const {
    return impl_->stats_;
}

uint64_t Stepper::compute_bytes() const {
    return impl_->runner_->bytes() + impl_->workspace_.bytes();
}

}  // namespace cellar
