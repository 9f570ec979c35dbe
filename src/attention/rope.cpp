#include "attention/rope.h"

#include <ggml.h>

#include <cmath>

namespace cellar {

ggml_tensor* apply_rope(ggml_context* ctx, ggml_tensor* x, ggml_tensor* positions,
                        const Rope& rope) {
    if ((rope.mode & GGML_ROPE_TYPE_MROPE) != 0) {
        std::array<int, 4> sections = rope.sections;  // which ggml takes as writable
        return ggml_rope_multi(ctx, x, positions, rope.factors, rope.n_dims, sections.data(),
                               rope.mode, rope.n_ctx_orig, rope.freq_base, rope.freq_scale,
                               rope.ext_factor, rope.attn_factor, rope.beta_fast, rope.beta_slow);
    }
    return ggml_rope_ext(ctx, x, positions, rope.factors, rope.n_dims, rope.mode, rope.n_ctx_orig,
                         rope.freq_base, rope.freq_scale, rope.ext_factor, rope.attn_factor,
                         rope.beta_fast, rope.beta_slow);
}

ggml_tensor* turn_rows(ggml_context* ctx, ggml_tensor* rows, int64_t n_head, ggml_tensor* deltas,
                       const Rope& rope) {
    Rope further = rope;
    if ((rope.mode & GGML_ROPE_TYPE_MROPE) != 0) further.mode = GGML_ROPE_TYPE_NEOX;
    // Where it blends frequencies (YaRN) ggml multiplies by
    // attn_factor * (1 + 0.1 ln(1 / freq_scale)).
    further.attn_factor =
        rope.ext_factor == 0.0f ? 1.0f : 1.0f / (1.0f + 0.1f * std::log(1.0f / rope.freq_scale));
    const int64_t width = rows->ne[0], n = rows->ne[1];
    ggml_tensor* heads = ggml_reshape_3d(ctx, rows, width / n_head, n_head, n);
    return ggml_reshape_2d(ctx, apply_rope(ctx, heads, deltas, further), width, n);
}

}  // namespace cellar
