#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "cells/loading.h"
#include "memory/kv_type.h"
#include "memory/memory.h"

namespace cellar {

// One of a layer's two tensors.
enum class Side : uint32_t { kKeys, kValues };

// Neighbouring rows of a pool.
struct PoolRows {
    uint32_t row = 0;
    uint32_t count = 0;
};

// How a group's keys or values are stored, and the numbers and bytes of one cell's row; 0 for a
// layer without rows of its own, from which nothing can be read, nor written to it.
KvType row_type(const Memory& memory, uint32_t group, Side side);
uint64_t row_values(const Memory& memory, uint32_t layer, Side side);
size_t row_bytes(const Memory& memory, uint32_t layer, Side side);

// Bytes of a row of `n_values` as `type`; 0 where its blocks do not divide them.
size_t bytes_of_row(KvType type, uint64_t n_values);

// Copies rows out, one after the other; `out` is as long as they are.
void read_rows(const Memory& memory, uint32_t layer, Side side, std::span<const PoolRows> runs,
               std::span<std::byte> out);

// Writes cells [first, ...) of a load, which nobody sees yet: `bytes` are whole rows.
void write_rows(Memory& memory, const Loading& loading, uint32_t layer, Side side, uint32_t first,
                std::span<const std::byte> bytes);

// Writes rows of one type as rows of another, through f32. `n_values` is what each row has, and
// both sides hold the same whole rows. O(values).
void convert_rows(KvType from, KvType to, uint64_t n_values, std::span<const std::byte> in,
                  std::span<std::byte> out);

}  // namespace cellar
