#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"

struct ggml_threadpool;

namespace cellar {

// ggml's CPU backend with threads of its own.
class CpuBackend {
public:
    // `n_threads`: 1 to 512. Errors: kInvalidArgument, kBackend.
    static Result<CpuBackend> create(uint32_t n_threads);

    ggml_backend_t get() const { return backend_.get(); }

private:
    struct FreeThreads {
        void operator()(ggml_threadpool* threads) const;
    };

    CpuBackend() = default;

    std::unique_ptr<ggml_threadpool, FreeThreads> threads_;  // outlive the backend that uses them
    ggml_backend_ptr backend_;
};

// Whether each operation of the graph can be computed by one of these backends, and reads and
// writes what one of them reaches. Errors: as GraphRunner::check.
Result<void> check_graph(ggml_cgraph* graph, std::span<const ggml_backend_t> backends);

// What became of a computation, as a result. Errors: kBackend.
Result<void> computed(ggml_status status);

}  // namespace cellar
