#pragma once

#include <cstdint>

#include "attention/attend_params.h"
#include "attention/schedule.h"
#include "memory/memory.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace cellar {

// What attention decides about the shape of a graph: equal shapes can share a built graph.
struct AttentionShape {
    uint32_t n_tokens = 0;
    uint32_t n_streams = 1;
    uint32_t length = 0;
    bool in_order = true;
    bool turned = false;  // some keys moved since they were encoded

    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

AttentionShape shape_of(const Schedule& schedule);

// The shape of one stream that needs most memory: `n_tokens` queries over the whole pool.
AttentionShape widest_shape(const Memory& memory, uint32_t group, uint32_t n_tokens);

// Attention of one group in one graph, in standard ggml operations: write K and V with
// ggml_set_rows, gather the rows of the schedule with ggml_get_rows, ggml_flash_attn_ext or a
// masked soft-max. Works on any backend that has these operations.
//
// Gathered rows are f32 whatever the pool's type: ggml's kernels are written for that (CPU, one
// query of SmolLM2 over 256 rows of f16: 1.3 ms with the gathering, 8.6 ms over the f16 rows in
// place; 512 queries over 1024 rows of q8_0: 1.7 s and 6.6 s).
class GraphAttention {
public:
    // Makes the input tensors in `ctx` (marked as inputs; allocated with the graph). `memory` must
    // outlive this.
    GraphAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                   const AttentionShape& shape, bool flash);

    // Adds to the graph: keep this ubatch's k and v in the layer's pool, then attend.
    //   q [head_dim_k, n_head, n_tokens], k [head_dim_k, n_head_kv, n_tokens],
    //   v [head_dim_v, n_head_kv, n_tokens], all f32, rope applied.
    // Returns [n_head * head_dim_v, n_tokens].
    ggml_tensor* attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q, ggml_tensor* k,
                        ggml_tensor* v, const AttendParams& params);

    // Fills the inputs for one ubatch, whose schedule has this shape; the graph must be allocated.
    // Before every run: running may overwrite inputs.
    void set_inputs(const Schedule& schedule, const UbatchPlan& ubatch);

private:
    ggml_tensor* input(ggml_tensor* tensor, const char* name) const;
    ggml_tensor* keep(ggml_cgraph* graph, ggml_tensor* pool, ggml_tensor* values) const;
    ggml_tensor* gather(ggml_tensor* pool, int64_t n_head_kv, const Rope* rope);
    ggml_tensor* turn(ggml_tensor* rows, int64_t n_head_kv, const Rope& rope);
    ggml_tensor* reorder(ggml_tensor* rows, ggml_tensor* by) const;
    ggml_tensor* mask_for(const AttendParams& params);
    ggml_tensor* weigh(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask,
                       const AttendParams& params) const;
    void set_mask(ggml_tensor* mask, const Schedule& schedule) const;

    ggml_context* ctx_;
    const Memory& memory_;
    const AttentionShape shape_;
    const bool flash_;
    const uint32_t group_;
    ggml_tensor* cells_ = nullptr;      // i64 [n_tokens] rows that set_rows writes
    ggml_tensor* rows_ = nullptr;       // i32 [length * n_streams] rows that get_rows gathers
    ggml_tensor* turns_ = nullptr;      // i32 [length * n_streams] deltas of gathered keys
    ggml_tensor* order_ = nullptr;      // i32 [n_tokens] items, stream by stream; null: in order
    ggml_tensor* place_ = nullptr;      // i32 [n_tokens] where an item stands in order_
    ggml_tensor* mask_ = nullptr;       // [length, n_tokens / n_streams, 1, n_streams], 0 or -inf
    ggml_tensor* distances_ = nullptr;  // the same for ALiBi: less the distance of visible keys
};

}  // namespace cellar
