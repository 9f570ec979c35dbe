#include "model/graph_runner.h"

#include <utility>

#include "model/cpu_backend.h"
#include "model/cpu_runner.h"
#include "model/split_runner.h"

namespace cellar {

Result<std::unique_ptr<GraphRunner>> GraphRunner::create(
    uint32_t n_threads, std::span<ggml_backend_device* const> devices) {
    auto cpu = CpuBackend::create(n_threads);
    if (!cpu) {
        return pass(std::move(cpu));
    }
    if (!devices.empty()) {
        return SplitRunner::create(*std::move(cpu), devices);
    }
    return std::make_unique<CpuRunner>(*std::move(cpu));
}

}  // namespace cellar
