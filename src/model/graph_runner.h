#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"

struct ggml_backend_device;
struct ggml_cgraph;

namespace cellar {

// Computes graphs, one at a time, in buffers that they all share: running one may overwrite the
// inputs of the others.
class GraphRunner {
public:
    virtual ~GraphRunner() = default;

    // The CPU with `n_threads` (1 to 512), and `devices` beside it, at most 15. Errors:
    // kInvalidArgument, kUnsupported for more devices, kBackend.
    static Result<std::unique_ptr<GraphRunner>> create(
        uint32_t n_threads, std::span<ggml_backend_device* const> devices);

    // Errors: kUnsupported, naming the graph's first operation that no device here has, or that is
    // on memory of another device.
    virtual Result<void> check(ggml_cgraph* graph) const = 0;

    // Lays the graph's tensors into the buffers, once. True if no graph that was laid out before is
    // any longer. Errors: kBackend; then it is so, too.
    virtual Result<bool> allocate(ggml_cgraph* graph) = 0;

    // Computes a graph that was laid out and whose inputs are set. Errors: kBackend.
    virtual Result<void> run(ggml_cgraph* graph) = 0;

    virtual uint64_t bytes() const = 0;  // of the buffers
};

}  // namespace cellar
