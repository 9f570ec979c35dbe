#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "cells/cell_move.h"
#include "memory/host_mapping.h"
#include "memory/kv_type.h"

namespace cellar {

// What a pool holds: for each layer one tensor of keys and one of values.
struct PoolConfig {
    struct Layer {
        uint32_t index = 0;  // in the model, for names and messages
        uint32_t n_head_kv = 0;
        uint32_t head_dim_k = 0;
        uint32_t head_dim_v = 0;
        ggml_backend_buffer_type_t buffer_type = nullptr;  // null: host memory
    };
    std::vector<Layer> layers;
    KvType type_k = KvType::kF16;
    KvType type_v = KvType::kF16;
    uint32_t n_cells = 0;  // whole pages
    uint32_t page_size = 0;
};

// Bytes of one cell's keys and values in all layers. Errors: as Pool::create.
Result<uint64_t> cell_bytes(const PoolConfig& config);

// The tensors of one group of layers. A cell's K and V stand in the row of its number in every
// tensor: page * page_size + offset. One more row, the last, stays zero for padding.
class Pool {
public:
    // Host memory is committed as it is first used, any other allocated and zeroed now. Errors:
    // kInvalidArgument for sizes that are 0 or overflow, kUnsupported for a type whose blocks would
    // reach over the end of a head, kBackend if memory cannot be had.
    static Result<Pool> create(const PoolConfig& config);

    // Of layer i of the config: [n_head_kv * head_dim, n_cells + 1].
    ggml_tensor* k(size_t i) const { return tensors_[2 * i]; }
    ggml_tensor* v(size_t i) const { return tensors_[2 * i + 1]; }

    // Copies whole cells, bytes as they are, in all layers. The cells of a copy do not overlap.
    void copy(std::span<const CellCopy> copies);

    // Commits host memory for every row now; elsewhere it was. Errors: kBackend.
    Result<void> commit();

    // Zeroes every row. O(bytes committed).
    void clear();

    // Of all tensors: address space on host memory, allocated elsewhere.
    uint64_t bytes() const { return bytes_; }

private:
    // What stands in one kind of memory. Freed from the last to the first: what the tensors stand
    // in goes after them.
    struct Part {
        ggml_backend_buffer_type_t buffer_type = nullptr;
        std::optional<HostMapping> mapping;  // none on other than host memory
        ggml_backend_buffer_ptr buffer;
        ggml_context_ptr ctx;
    };

    explicit Pool(uint32_t page_size) : page_size_(page_size) {}
    Part& part_in(ggml_backend_buffer_type_t buffer_type, size_t n_tensors);
    Result<void> place_on_host(Part& part);
    Result<void> place_on_device(Part& part);

    uint32_t page_size_;
    uint64_t bytes_ = 0;
    std::vector<Part> parts_;
    std::vector<ggml_tensor*> tensors_;  // k and v of layer 0, of layer 1, ...
};

}  // namespace cellar
