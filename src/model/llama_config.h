#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "model/rope_config.h"

namespace cellar {

// The settings of a model of architecture `llama`, or of one that is built like it, as its graph
// needs them. Every number has been checked: products of them fit their types, heads divide as they
// must.
struct LlamaConfig {
    uint32_t n_layer = 0;
    uint32_t n_embd = 0;              // width of the residual stream
    uint32_t n_head = 0;              // query heads
    std::vector<uint32_t> n_head_kv;  // [n_layer]; each divides n_head; 0: no attention
    uint32_t head_dim = 0;            // of queries, keys and values; even
    uint32_t n_ff = 0;                // width inside the feed-forward block
    uint32_t n_vocab = 0;             // rows of token_embd; equals the tokenizer's list
    uint32_t n_ctx_train = 0;         // tokens
    float norm_eps = 0;               // added to variances, or to mean squares by RMS norms
    bool head_norms = false;          // queries and keys are normed by head; no key says it
    float attn_scale = 0;             // of q·k: 1 / sqrt(head_dim)
    RopeConfig rope;
};

// Reads `<architecture>.*`. As llama.cpp does for llama, it ignores attention.scale, sliding
// windows, soft-caps, clamps and logit scales: converters write keys that llama has no use for.
// Errors: kUnsupported for another architecture, experts, attention that is not causal, heads or
// feed-forward widths that differ by layer, or values as wide as no key; kBadFile for missing keys
// and numbers that make no sense.
// Layers with 0 heads (of queries or of keys) have no attention, where that is allowed: then
// n_head_kv is 0; some layer has heads.
// `norm_eps` names the key of LlamaConfig::norm_eps.
enum class LayersWithoutHeads { kRefused, kAllowed };

Result<LlamaConfig> read_llama_config(
    const GgufFile& file, std::string_view architecture = "llama",
    std::string_view norm_eps = "attention.layer_norm_rms_epsilon",
    LayersWithoutHeads without_heads = LayersWithoutHeads::kRefused);

}  // namespace cellar
