#pragma once

#include <array>
#include <cstdint>

struct ggml_context;
struct ggml_tensor;

namespace cellar {

// How positions turn queries and keys: the arguments of ggml_rope_ext, or with GGML_ROPE_TYPE_MROPE
// or GGML_ROPE_TYPE_IMROPE those of ggml_rope_multi.
struct Rope {
    ggml_tensor* factors = nullptr;  // f32 [n_dims / 2] divides each frequency; may be null
    int n_dims = 0;                  // of a head's width, from its start
    int mode = 0;                    // GGML_ROPE_TYPE_*
    int n_ctx_orig = 0;
    float freq_base = 10000.0f;
    float freq_scale = 1.0f;
    float ext_factor = 0.0f;
    float attn_factor = 1.0f;
    float beta_fast = 32.0f;
    float beta_slow = 1.0f;
    std::array<int, 4> sections{};  // of M-RoPE: pairs that each component of a position turns
};

// x [head_dim, n_head, n], turned by `positions`: i32 [n], or with M-RoPE [4 * n], a component at a
// time.
ggml_tensor* apply_rope(ggml_context* ctx, ggml_tensor* x, ggml_tensor* positions,
                        const Rope& rope);

// Rows of keys [head_dim * n_head, n], f32 and turned before, turned further by `deltas`, i32 [n]:
// angles grow, magnitudes stay. Every angle of a rope is its position times a frequency that
// depends on no position, so turns add up. With M-RoPE a delta moves all components alike, and so
// turns every section by the same positions: as NEOX, which pairs dimensions the same way.
ggml_tensor* turn_rows(ggml_context* ctx, ggml_tensor* rows, int64_t n_head, ggml_tensor* deltas,
                       const Rope& rope);

}  // namespace cellar
