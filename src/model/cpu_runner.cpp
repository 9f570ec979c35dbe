#include "model/cpu_runner.h"

#include <fmt/format.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <utility>

namespace cellar {

CpuRunner::CpuRunner(CpuBackend cpu)
    : cpu_(std::move(cpu)), allocator_(ggml_gallocr_new(ggml_backend_cpu_buffer_type())) {
}

Result<void> CpuRunner::check(ggml_cgraph* graph) const {
    ggml_backend_t cpu = cpu_.get();
    return check_graph(graph, {&cpu, 1});
}

Result<bool> CpuRunner::allocate(ggml_cgraph* graph) {
    const uint64_t before = bytes();
    // Reserving makes ggml lay out this graph, where it would take the last one's layout for any
    // graph of as many nodes. The buffer stays if it is large enough.
    if (!ggml_gallocr_reserve(allocator_.get(), graph) ||
        !ggml_gallocr_alloc_graph(allocator_.get(), graph)) {
        return fail(Code::kBackend, "Cannot allocate the compute buffer.");
    }
    return bytes() != before;
}

Result<void> CpuRunner::run(ggml_cgraph* graph) {
    return computed(ggml_backend_graph_compute(cpu_.get(), graph));
}

uint64_t CpuRunner::bytes() const {
    return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

}  // namespace cellar
