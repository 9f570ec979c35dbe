#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
    bool contiguous = false;
    bool in_order = true;

    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

AttentionShape shape_of(const Schedule& schedule);

// The shape of one stream that needs most memory: `n_tokens` queries over the whole pool.
AttentionShape widest_shape(const Memory& memory, uint32_t group, uint32_t n_tokens);

// Attention of one group in one graph, in standard ggml operations: write K and V with
// ggml_set_rows, gather the rows of the schedule with ggml_get_rows, ggml_flash_attn_ext or a
// masked soft-max. Works on any backend that has these operations. Rows that lie in order in host
// memory are not gathered: the graph reads them where they stand, and set_inputs moves its view.
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
    // How attention comes by the rows of a pool.
    enum class Access {
        kInPlace,  // a view of neighbouring rows
        kStored,   // rows gathered byte by byte
        kFloat,    // rows gathered and converted to f32
    };

    Access choose_access() const;
    ggml_tensor* input(ggml_tensor* tensor, const char* name) const;
    ggml_tensor* keep(ggml_cgraph* graph, ggml_tensor* pool, ggml_tensor* values) const;
    ggml_tensor* keys_of(ggml_tensor* pool, uint32_t n_head_kv);
    ggml_tensor* gather(ggml_tensor* pool);
    ggml_tensor* mask_for(const AttendParams& params);
    ggml_tensor* attend_flash(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                              const AttendParams& params);
    ggml_tensor* attend_soft_max(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                                 const AttendParams& params);
    void move_views(const Schedule& schedule);
    void set_mask(ggml_tensor* mask, const Schedule& schedule, bool distances) const;

    ggml_context* ctx_;
    const Memory& memory_;
    const uint32_t group_;
    const AttentionShape shape_;
    const bool flash_;
    const Access access_;
    ggml_tensor* cells_ = nullptr;      // i64 [n_tokens] rows that set_rows writes
    ggml_tensor* rows_ = nullptr;       // i32 [length * n_streams] rows that get_rows gathers
    ggml_tensor* order_ = nullptr;      // i32 [n_tokens] items, stream by stream; null: in order
    ggml_tensor* place_ = nullptr;      // i32 [n_tokens] where in `order_` an item stands
    ggml_tensor* mask_ = nullptr;       // f16 or f32 [length, n_tokens / n_streams, 1, n_streams]
    ggml_tensor* distances_ = nullptr;  // the same, less the distance to visible keys, for ALiBi
    std::vector<ggml_tensor*> views_;   // of pools, to be moved: [head_dim, n_columns, n_head_kv]
};

}  // namespace cellar
