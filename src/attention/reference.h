#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/attend_params.h"
#include "base/types.h"
#include "memory/memory.h"

struct ggml_tensor;

namespace cellar {

// A cell as a query sees it: where it stands, and its key and value in floating point.
struct SeenRow {
    Pos pos = 0;
    std::span<const float> k;  // [n_head_kv * head_dim_k]
    std::span<const float> v;  // [n_head_kv * head_dim_v]
};

// Attention of one query over the listed rows, all of them, in double precision and without any
// skill: what every other way of attending is judged by. At least one row.
//   q [n_head * head_dim_k]; returns [n_head * head_dim_v].
std::vector<double> reference_attention(const LayerKv& layer, std::span<const float> q, Pos pos,
                                        std::span<const SeenRow> rows, const AttendParams& params);

// One row of a pool's tensor, whatever its type.
std::vector<float> read_row(const ggml_tensor* pool, uint32_t row);

}  // namespace cellar
