#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>

#include "base/error.h"

struct ggml_threadpool;

namespace cellar {

// The CPU with its threads and one compute buffer that all graphs share: only one runs at a time,
// and running it may overwrite the inputs of the others.
class GraphRunner {
public:
    // `n_threads`: 1 to 512. Errors: kInvalidArgument, kBackend.
    static Result<GraphRunner> create(uint32_t n_threads);

    // Errors: kUnsupported, naming the graph's first operation that the backend lacks or that is
    // on memory of another device.
    Result<void> check(ggml_cgraph* graph) const;

    // Lays the graph's tensors into the buffer. True if the buffer had to grow: then every graph
    // that was laid out before is no longer. Errors: kBackend; then it is so, too.
    Result<bool> allocate(ggml_cgraph* graph);

    // Computes a graph that was laid out and whose inputs are set. Errors: kBackend.
    Result<void> run(ggml_cgraph* graph);

    uint64_t bytes() const;  // of the buffer

private:
    struct FreeThreads {
        void operator()(ggml_threadpool* threads) const;
    };

    GraphRunner() = default;

    std::unique_ptr<ggml_threadpool, FreeThreads> threads_;  // outlive the backend that uses them
    ggml_backend_ptr backend_;
    ggml_gallocr_ptr allocator_;
};

}  // namespace cellar
