#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/cpu_backend.h"
#include "model/graph_runner.h"

namespace cellar {

// The CPU and other devices: each operation runs where its weights or its part of the memory are,
// and what it reads from elsewhere is copied there. One graph is laid out at a time.
class SplitRunner : public GraphRunner {
public:
    // Errors: kUnsupported for more than 15 devices; kBackend, naming the one that cannot be
    // started.
    static Result<std::unique_ptr<GraphRunner>> create(
        CpuBackend cpu, std::span<ggml_backend_device* const> devices);

    Result<void> check(ggml_cgraph* graph) const override;
    Result<bool> allocate(ggml_cgraph* graph) override;
    Result<void> run(ggml_cgraph* graph) override;
    uint64_t bytes() const override;

private:
    explicit SplitRunner(CpuBackend cpu) : cpu_(std::move(cpu)) {}
    void make_scheduler(size_t n_tensors);

    CpuBackend cpu_;
    std::vector<ggml_backend_ptr> others_;
    std::vector<ggml_backend_t> backends_;  // the others, then the CPU
    size_t n_tensors_ = 0;                  // that the scheduler has room for
    ggml_backend_sched_ptr scheduler_;
};

}  // namespace cellar
