#pragma once

#include <cstdint>
#include <vector>

#include "attention/attention.h"

namespace cellar {

// Attention of one group in one graph, in standard ggml operations: write K and V with
// ggml_set_rows, gather the rows of the schedule with ggml_get_rows, ggml_flash_attn_ext or a
// masked soft-max. Works on any backend that has these operations.
//
// Gathered rows are f32 whatever the pool's type: ggml's kernels are written for that (CPU, one
// query of SmolLM2 over 256 rows of f16: 1.3 ms with the gathering, 8.6 ms over the f16 rows in
// place; 512 queries over 1024 rows of q8_0: 1.7 s and 6.6 s).
class GraphAttention : public Attention {
public:
    GraphAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                   const AttentionShape& shape, bool flash);

    ggml_tensor* attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q, ggml_tensor* k,
                        ggml_tensor* v, const AttendParams& params) override;

    void set_inputs(const AttentionPlan& plan, const UbatchPlan& ubatch) override;

private:
    // A layer's rows in the order of the schedule, for all layers that attend to them.
    struct Gathered {
        ggml_tensor* keys = nullptr;    // [head_dim_k, length, n_head_kv, n_streams]
        ggml_tensor* values = nullptr;  // [head_dim_v, length, n_head_kv, n_streams]
    };

    ggml_tensor* gather(ggml_tensor* pool, int64_t n_head_kv, const Rope* rope);
    ggml_tensor* turn(ggml_tensor* rows, int64_t n_head_kv, const Rope& rope);
    ggml_tensor* reorder(ggml_tensor* rows, ggml_tensor* by) const;
    ggml_tensor* mask_for(const AttendParams& params);
    ggml_tensor* biased(ggml_tensor* mask, const AttendParams& params);
    void set_buckets(const Schedule& schedule) const;
    ggml_tensor* weigh(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask,
                       const AttendParams& params) const;
    void set_mask(ggml_tensor* mask, const Schedule& schedule) const;

    const AttentionShape shape_;
    const bool flash_;
    std::vector<Gathered> gathered_;    // by layer; null: not yet
    ggml_tensor* rows_ = nullptr;       // i32 [length * n_streams] rows that get_rows gathers
    ggml_tensor* turns_ = nullptr;      // i32 [length * n_streams] deltas of gathered keys
    ggml_tensor* order_ = nullptr;      // i32 [n_tokens] items, stream by stream; null: in order
    ggml_tensor* place_ = nullptr;      // i32 [n_tokens] where an item stands in order_
    ggml_tensor* mask_ = nullptr;       // [length, n_tokens / n_streams, 1, n_streams], 0 or -inf
    ggml_tensor* buckets_ = nullptr;    // i32 [mask_'s elements]: rows of a bias by distance
    RelativeBuckets bucket_kind_;       // of buckets_
    ggml_tensor* distances_ = nullptr;  // the same for ALiBi: less the distance of visible keys
};

}  // namespace cellar
