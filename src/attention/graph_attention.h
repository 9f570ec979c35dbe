#pragma once

#include <cstdint>

#include "attention/schedule.h"
#include "base/error.h"
#include "memory/memory.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace cellar {

// What attention decides about the shape of a graph: equal shapes can share a built graph.
struct AttentionShape {
    uint32_t n_tokens = 0;
    uint32_t n_streams = 0;
    uint32_t length = 0;

    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

AttentionShape shape_of(const Schedule& schedule);

// How a layer's scores are made.
struct AttendParams {
    float scale = 1.0f;          // of q·k
    float max_alibi_bias = 0.0f; // 0: none
    float softcap = 0.0f;        // 0: none
};

// Attention of one group in one graph, in standard ggml operations: write K and V with
// ggml_set_rows, gather the rows of the schedule with ggml_get_rows, ggml_flash_attn_ext or a
// masked soft-max. Works on any backend that has these operations.
class GraphAttention {
public:
    // Makes the input tensors in `ctx` (marked as inputs; allocated with the graph).
    GraphAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                   const AttentionShape& shape, bool flash);

    // Adds to the graph: keep this ubatch's k and v in the layer's pool, then attend.
    //   q [head_dim_k, n_head, n_tokens], k [head_dim_k, n_head_kv, n_tokens],
    //   v [head_dim_v, n_head_kv, n_tokens], all f32, rope applied.
    // Returns [n_head * head_dim_v, n_tokens].
    ggml_tensor* attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q, ggml_tensor* k,
                        ggml_tensor* v, const AttendParams& params);

    // Fills the inputs for one ubatch; the graph must be allocated.
    void set_inputs(const Schedule& schedule, const UbatchPlan& ubatch);

private:
    ggml_context* ctx_;
    const Memory& memory_;
    const uint32_t group_;
    const AttentionShape shape_;
    const bool flash_;
    ggml_tensor* cells_ = nullptr;  // i64 [n_tokens] rows that set_rows writes
    ggml_tensor* rows_ = nullptr;   // i32 [length * n_streams] rows that get_rows gathers
    ggml_tensor* order_ = nullptr;  // i32 [n_tokens] items, stream by stream; null if in order already
    ggml_tensor* mask_ = nullptr;   // [length, n_tokens / n_streams, 1, n_streams]
};

}  // namespace cellar
