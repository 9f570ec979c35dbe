#pragma once

#include <ggml.h>

// Where the ggml versions that we build with differ (0.15.3, the pinned one, to 0.25), our code
// calls what stands here. What it relies on beyond that is the same in both: ggml_set_rows takes
// f32 sources (newer ones f16 too) and 64-bit row numbers; ggml_get_rows gives f32; a
// flash-attention mask is f16, contiguous, and needs no padding of its rows.

namespace cellar {

namespace detail {

// 0.25 has one function for every operation, and calls those of 0.15 deprecated. The template's
// parameter makes the choice wait until the call, where the newer name exists or not.
template <class Tensor>
void set_sum_precision(Tensor* result) {
    if constexpr (requires { ggml_prec_set_acc(result, GGML_PREC_F32); }) {
        ggml_prec_set_acc(result, GGML_PREC_F32);
    } else if (result->op == GGML_OP_FLASH_ATTN_EXT) {
        ggml_flash_attn_ext_set_prec(result, GGML_PREC_F32);
    } else {
        ggml_mul_mat_set_prec(result, GGML_PREC_F32);
    }
}

// 0.25 asks how many of the newest states to give.
template <class Tensor>
Tensor* scan(ggml_context* ctx, Tensor* s, Tensor* x, Tensor* dt, Tensor* a, Tensor* b, Tensor* c,
             Tensor* ids) {
    if constexpr (requires { ggml_ssm_scan(ctx, s, x, dt, a, b, c, ids, 1); }) {
        return ggml_ssm_scan(ctx, s, x, dt, a, b, c, ids, 1);
    } else {
        return ggml_ssm_scan(ctx, s, x, dt, a, b, c, ids);
    }
}

}  // namespace detail

// Asks for sums in f32 from the result of ggml_flash_attn_ext or ggml_mul_mat.
inline void sum_in_f32(ggml_tensor* result) {
    detail::set_sum_precision(result);
}

// ggml_ssm_scan for the last state alone: one vector, y behind it the states.
inline ggml_tensor* ssm_scan(ggml_context* ctx, ggml_tensor* s, ggml_tensor* x, ggml_tensor* dt,
                             ggml_tensor* a, ggml_tensor* b, ggml_tensor* c, ggml_tensor* ids) {
    return detail::scan(ctx, s, x, dt, a, b, c, ids);
}

}  // namespace cellar
