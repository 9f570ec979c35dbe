#include "model/graph_runner.h"

#include <fmt/format.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

namespace cellar {

namespace {

// A device reaches its own memory, whatever kind of it. What has no buffer yet will get one here.
bool reaches(ggml_backend_t backend, const ggml_tensor* tensor) {
    return !tensor->buffer || ggml_backend_buffer_is_host(tensor->buffer) ||
           ggml_backend_buft_get_device(ggml_backend_buffer_get_type(tensor->buffer)) ==
               ggml_backend_get_device(backend);
}

// What an operation reads or writes beyond the backend's reach; null if all is within.
const ggml_tensor* unreachable(ggml_backend_t backend, const ggml_tensor* node) {
    const auto whole = [](const ggml_tensor* tensor) {
        return tensor->view_src ? tensor->view_src : tensor;
    };
    if (!reaches(backend, whole(node))) return whole(node);
    for (const ggml_tensor* source : node->src) {
        if (source && !reaches(backend, whole(source))) return whole(source);
    }
    return nullptr;
}

}  // namespace

void GraphRunner::FreeThreads::operator()(ggml_threadpool* threads) const {
    ggml_threadpool_free(threads);
}

Result<GraphRunner> GraphRunner::create(uint32_t n_threads) {
    if (n_threads < 1 || n_threads > GGML_MAX_N_THREADS) {
        return fail(Code::kInvalidArgument, fmt::format("{} threads: at least 1 and at most {} can "
                                                        "compute.",
                                                        n_threads, GGML_MAX_N_THREADS));
    }
    const int n = static_cast<int>(n_threads);
    ggml_threadpool_params params = ggml_threadpool_params_default(n);
    GraphRunner runner;
    runner.threads_.reset(ggml_threadpool_new(&params));
    runner.backend_.reset(ggml_backend_cpu_init());
    runner.allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (!runner.threads_ || !runner.backend_ || !runner.allocator_) {
        return fail(Code::kBackend, fmt::format("Cannot start {} compute threads.", n));
    }
    ggml_backend_cpu_set_n_threads(runner.backend_.get(), n);
    ggml_backend_cpu_set_threadpool(runner.backend_.get(), runner.threads_.get());
    return runner;
}

Result<void> GraphRunner::check(ggml_cgraph* graph) const {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor* node = ggml_graph_node(graph, i);
        if (const ggml_tensor* far = unreachable(backend_.get(), node)) {
            return fail(Code::kUnsupported,
                        fmt::format("The backend {} cannot reach {}, in {}.",
                                    ggml_backend_name(backend_.get()), far->name,
                                    ggml_backend_buffer_name(far->buffer)));
        }
        if (!ggml_backend_supports_op(backend_.get(), node)) {
            return fail(Code::kUnsupported, fmt::format("The backend {} cannot compute {} ({}).",
                                                        ggml_backend_name(backend_.get()),
                                                        ggml_op_desc(node), node->name));
        }
    }
    return {};
}

Result<bool> GraphRunner::allocate(ggml_cgraph* graph) {
    const uint64_t before = bytes();
    // Reserving makes ggml lay out this graph, where it would take the last one's layout for any
    // graph of as many nodes. The buffer stays if it is large enough.
    if (!ggml_gallocr_reserve(allocator_.get(), graph) ||
        !ggml_gallocr_alloc_graph(allocator_.get(), graph)) {
        return fail(Code::kBackend, "Cannot allocate the compute buffer.");
    }
    return bytes() != before;
}

Result<void> GraphRunner::run(ggml_cgraph* graph) {
    const ggml_status status = ggml_backend_graph_compute(backend_.get(), graph);
    if (status != GGML_STATUS_SUCCESS) {
        return fail(Code::kBackend,
                    fmt::format("The computation failed: {}.", ggml_status_to_string(status)));
    }
    return {};
}

uint64_t GraphRunner::bytes() const {
    return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

}  // namespace cellar
