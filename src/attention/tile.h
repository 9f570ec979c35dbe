#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/lanes.h"
#include "base/types.h"
#include "memory/kv_type.h"

namespace cellar {

// A query of a segment (see cascade.h).
struct TileQuery {
    uint32_t row = 0;    // of the tensor of queries
    uint32_t begin = 0;  // it sees the columns [begin, end) of its segment
    uint32_t end = 0;
    Pos pos = 0;  // its position, less what the segment's cells moved by since they were encoded
};

// A pool's keys or values: row r of KV head h stands at data + r * stride + h * head_bytes.
struct TileSource {
    const uint8_t* data = nullptr;
    size_t stride = 0;      // bytes
    size_t head_bytes = 0;  // bytes
    KvType type = KvType::kF16;
    uint32_t head_dim = 0;
};

// A piece of attention: for neighbouring KV heads, query rows against neighbouring columns of a
// segment. A row is one query in one of the heads that share a KV head: row r is head r % n_heads
// of query r / n_heads.
struct TileTask {
    TileSource k;
    TileSource v;
    std::span<const RowRun> runs;  // of the segment: what its columns are
    const Pos* positions =
        nullptr;                // of the segment's columns, as encoded; for `slopes` and `bias`
    uint32_t first_column = 0;  // the columns [first_column, end_column) of the segment
    uint32_t end_column = 0;
    std::span<const TileQuery> queries;
    uint32_t n_kv_heads = 1;
    uint32_t n_heads = 1;      // that share a KV head
    const float* q = nullptr;  // row 0 of the first head; a head takes k.head_dim floats
    size_t q_stride = 0;       // floats from one row to the next
    float scale = 1.0f;        // of q·k
    float softcap = 0.0f;      // 0: none
    // Added by distance, clamped to the reach on both sides: [n_kv_heads * n_heads, 2 * reach + 1],
    // as binary logarithms; null: none.
    const float* bias = nullptr;
    int32_t reach = 0;
    const float* slopes = nullptr;  // ALiBi, [n_kv_heads * n_heads]; null: none

    bool is_adjusted() const { return softcap > 0 || slopes != nullptr || bias != nullptr; }
    uint32_t n_rows() const { return static_cast<uint32_t>(queries.size()) * n_heads; }
};

// What a row has summed: `head_dim_v` weighted values, then the sum of the weights and the binary
// logarithm of what all of them were divided by. Sums over different columns merge associatively.
// A row that saw nothing has a sum of 0.
constexpr size_t partial_floats(size_t head_dim_v) {
    return (head_dim_v + 2 + 15) / 16 * 16;
}

// Floats of scratch that attend_tile needs for up to `n_rows` rows of up to `n_kv_heads`.
size_t tile_scratch_floats(size_t n_kv_heads, size_t n_rows, size_t head_dim_k, size_t head_dim_v);

// Up to this many rows are computed straight from the pool, a dot product for each key; more rows
// share blocks of columns that are converted once.
constexpr uint32_t kFewRows = 9;

// Sums every row of the task. O(rows * columns that some row sees). Reads only cells of columns
// that some row sees. The result depends on nothing but the task.
//   scratch: tile_scratch_floats(...), aligned to 64 bytes
//   out [n_rows, partial_floats(head_dim_v)] of the first KV head; the next head's `out_stride`
//       floats behind
void attend_tile(const TileTask& task, float* scratch, float* out, size_t out_stride);

// Merges sums over different columns, in their order, and divides by the sum of the weights.
// `sink_log2`: a further weight without a value, as the binary logarithm, or null.
//   out [head_dim_v]
void merge_partials(std::span<const float* const> partials, size_t head_dim_v,
                    const float* sink_log2, float* out);

}  // namespace cellar
