#pragma once

#include <cstdint>
#include <vector>

#include "attention/rope.h"
#include "base/error.h"
#include "gguf/gguf_file.h"
#include "model/linear.h"
#include "model/llama_config.h"
#include "model/outer_weights.h"
#include "model/weights.h"

namespace cellar {

// The tensors of one layer. Shapes are ggml's `ne`, innermost first; n_q = n_head * head_dim,
// n_kv = n_head_kv[layer] * head_dim.
//
// Scales ([1], f32) are factors of a whole product. Whatever the weight's type, they are applied
// when the file has them, but, as llama.cpp does it, at two different places:
//   attention (q, k, v, o):      scale * (W x) + bias
//   feed-forward (gate, up, down): scale * (W x + bias)
// The files' `.input_scale` tensors are for backends that quantize activations; llama.cpp's graph
// reads them nowhere, and neither do we.
struct LlamaLayer {
    ggml_tensor* attn_norm = nullptr;  // [n_embd]
    Linear q;                          // [n_embd, n_q]
    Linear k;                          // [n_embd, n_kv]
    Linear v;                          // [n_embd, n_kv]
    ggml_tensor* q_norm = nullptr;     // [head_dim]; null unless config.head_norms
    ggml_tensor* k_norm = nullptr;     // likewise
    Linear o;                          // [n_q, n_embd]
    ggml_tensor* ffn_norm = nullptr;   // [n_embd]
    Linear gate;                       // [n_embd, n_ff]
    Linear up;                         // [n_embd, n_ff]
    Linear down;                       // [n_ff, n_embd]
};

struct LlamaWeights {
    OuterWeights outer;
    std::vector<LlamaLayer> layers;  // [n_layer]

    // Frequency factors, f32 [head_dim / 2]; null if the file has none.
    ggml_tensor* rope_freqs = nullptr;  // for every context (Llama 3)
    ggml_tensor* rope_long = nullptr;   // LongRoPE, for contexts beyond the original one,
    ggml_tensor* rope_short = nullptr;  // and for those within

    Weights memory;  // what the tensors live in

    // The factors for a context of `n_ctx` tokens; may be null.
    ggml_tensor* rope_factors(uint32_t n_ctx, const Rope& rope) const;
};

// Loads every tensor of the architecture `llama`, or of one built like it. `config` is that of the
// same file. Errors: as WeightsLoader's.
Result<LlamaWeights> load_llama(const GgufFile& file, const LlamaConfig& config,
                                const WeightsOptions& options = {}, const Progress& progress = {});

}  // namespace cellar
