#pragma once

#include <ggml-cpp.h>

#include <cstdint>

#include "model/cpu_backend.h"
#include "model/graph_runner.h"

namespace cellar {

// All on the CPU: many graphs can be laid out in its buffer at a time.
class CpuRunner : public GraphRunner {
public:
    explicit CpuRunner(CpuBackend cpu);

    Result<void> check(ggml_cgraph* graph) const override;
    Result<bool> allocate(ggml_cgraph* graph) override;
    Result<void> run(ggml_cgraph* graph) override;
    uint64_t bytes() const override;

private:
    CpuBackend cpu_;
    ggml_gallocr_ptr allocator_;
};

}  // namespace cellar
