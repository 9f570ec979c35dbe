#include "model/llama_weights.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace cellar {

namespace {

LlamaLayer ask_layer(WeightsLoader& loader, const LlamaConfig& config, uint32_t index) {
    const std::string prefix = fmt::format("blk.{}.", index);
    const int64_t n_embd = config.n_embd;
    const int64_t n_ff = config.n_ff;
    const int64_t n_q = int64_t{config.n_head} * config.head_dim;
    const int64_t n_kv = int64_t{config.n_head_kv[index]} * config.head_dim;

    LlamaLayer layer;
    layer.attn_norm = loader.require(prefix + "attn_norm.weight", {n_embd}, Use::kMul);
    layer.q = ask_linear(loader, prefix + "attn_q", {n_embd, n_q});
    layer.k = ask_linear(loader, prefix + "attn_k", {n_embd, n_kv});
    layer.v = ask_linear(loader, prefix + "attn_v", {n_embd, n_kv});
    if (config.head_norms) {
        layer.q_norm = loader.require(prefix + "attn_q_norm.weight", {config.head_dim}, Use::kMul);
        layer.k_norm = loader.require(prefix + "attn_k_norm.weight", {config.head_dim}, Use::kMul);
    }
    layer.o = ask_linear(loader, prefix + "attn_output", {n_q, n_embd});
    layer.ffn_norm = loader.require(prefix + "ffn_norm.weight", {n_embd}, Use::kMul);
    layer.gate = ask_linear(loader, prefix + "ffn_gate", {n_embd, n_ff});
    layer.up = ask_linear(loader, prefix + "ffn_up", {n_embd, n_ff});
    layer.down = ask_linear(loader, prefix + "ffn_down", {n_ff, n_embd});
    return layer;
}

void ask_rope(WeightsLoader& loader, const LlamaConfig& config, LlamaWeights& weights) {
    const int64_t pairs = config.head_dim / 2;
    if (config.rope.scaling == RopeScaling::kLongRope) {
        weights.rope_long = loader.find("rope_factors_long.weight", {pairs}, Use::kRope);
        weights.rope_short = loader.find("rope_factors_short.weight", {pairs}, Use::kRope);
    } else {
        weights.rope_freqs = loader.find("rope_freqs.weight", {pairs}, Use::kRope);
    }
}

}  // namespace

ggml_tensor* LlamaWeights::rope_factors(uint32_t n_ctx, const Rope& rope) const {
    if (rope_freqs != nullptr) return rope_freqs;
    return int64_t{n_ctx} > rope.n_ctx_orig ? rope_long : rope_short;
}

Result<LlamaWeights> load_llama(const GgufFile& file, const LlamaConfig& config,
                                const WeightsOptions& options, const Progress& progress) {
    WeightsLoader loader(file, options);
    LlamaWeights weights;
    weights.outer = ask_outer(loader, config);
    ask_rope(loader, config, weights);
    for (uint32_t i = 0; i < config.n_layer; ++i) {
        weights.layers.push_back(ask_layer(loader, config, i));
    }
    auto memory = std::move(loader).load(progress);
    if (!memory) return pass(std::move(memory));
    weights.memory = std::move(*memory);
    return weights;
}

}  // namespace cellar
