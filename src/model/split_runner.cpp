#include "model/split_runner.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <utility>

namespace cellar {

namespace {

// GGML_SCHED_MAX_BACKENDS, which no header has, less the CPU; ggml ends the process at more.
constexpr size_t kMostDevices = 15;

// Where a backend computes what stands in no buffer of its own. The CPU's is memory that the first
// device copies to and from fastest, if it has such.
ggml_backend_buffer_type_t buffer_type_of(ggml_backend_t backend, ggml_backend_t first) {
    const bool on_cpu =
        ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_CPU;
    ggml_backend_buffer_type_t pinned =
        on_cpu ? ggml_backend_dev_host_buffer_type(ggml_backend_get_device(first)) : nullptr;
    return pinned ? pinned : ggml_backend_get_default_buffer_type(backend);
}

}  // namespace

Result<std::unique_ptr<GraphRunner>> SplitRunner::create(
    CpuBackend cpu, std::span<ggml_backend_device* const> devices) {
    if (devices.size() > kMostDevices) {
        return fail(Code::kUnsupported,
                    fmt::format("Layers are on {} devices; at most {} can compute beside the CPU.",
                                devices.size(), kMostDevices));
    }
    std::unique_ptr<SplitRunner> runner(new SplitRunner(std::move(cpu)));
    for (ggml_backend_dev_t device : devices) {
        ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
        if (!backend) {
            return fail(Code::kBackend, fmt::format("The device {} cannot be started.",
                                                    ggml_backend_dev_name(device)));
        }
        runner->backends_.push_back(backend.get());
        runner->others_.push_back(std::move(backend));
    }
    runner->backends_.push_back(runner->cpu_.get());
    return runner;
}

Result<void> SplitRunner::check(ggml_cgraph* graph) const {
    return check_graph(graph, backends_);
}

void SplitRunner::make_scheduler(size_t n_tensors) {
    std::vector<ggml_backend_buffer_type_t> types;
    for (ggml_backend_t backend : backends_)
        types.push_back(buffer_type_of(backend, backends_.front()));
    n_tensors_ = n_tensors;
    scheduler_.reset(ggml_backend_sched_new(backends_.data(), types.data(),
                                            static_cast<int>(backends_.size()), n_tensors,
                                            /*parallel=*/false, /*op_offload=*/true));
}

Result<bool> SplitRunner::allocate(ggml_cgraph* graph) {
    // A graph has room for as many inputs and weights as for operations.
    const size_t n_tensors = 2 * static_cast<size_t>(ggml_graph_size(graph));
    if (n_tensors > n_tensors_) make_scheduler(n_tensors);
    ggml_backend_sched_reset(scheduler_.get());
    if (!ggml_backend_sched_alloc_graph(scheduler_.get(), graph)) {
        return fail(Code::kBackend, "Cannot allocate the compute buffers.");
    }
    return true;
}

Result<void> SplitRunner::run(ggml_cgraph* graph) {
    return computed(ggml_backend_sched_graph_compute(scheduler_.get(), graph));
}

uint64_t SplitRunner::bytes() const {
    uint64_t bytes = 0;
    for (ggml_backend_t backend : backends_) {
        if (scheduler_) bytes += ggml_backend_sched_get_buffer_size(scheduler_.get(), backend);
    }
    return bytes;
}

}  // namespace cellar
