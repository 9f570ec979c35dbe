#include "model/mpt.h"

#include <fmt/format.h>
#include <ggml.h>

#include <string>
#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/metadata.h"
#include "model/step_graph.h"

namespace cellar {

namespace {

// x [.., n_tokens] → [head_dim, n_head, n_tokens], from row `begin` on.
ggml_tensor* heads_at(ggml_context* ctx, ggml_tensor* x, int64_t begin, int64_t head_dim,
                      int64_t n_head) {
    const size_t row_bytes = x->nb[0] * static_cast<size_t>(head_dim);
    return ggml_view_3d(ctx, x, head_dim, n_head, x->ne[1], row_bytes, x->nb[1],
                        x->nb[0] * static_cast<size_t>(begin));
}

}  // namespace

Result<std::unique_ptr<Model>> MptModel::load(const GgufFile& file, const LoadOptions& options) {
    auto config = read_llama_config(file, "mpt", "attention.layer_norm_epsilon");
    if (!config) {
        return pass(std::move(config));
    }
    if (options.rope.any()) {
        return fail(Code::kUnsupported,
                    fmt::format("{}: a model of architecture mpt has no rotary positions to change",
                                file.path()));
    }
    auto extras = read_extras(file);
    if (!extras) {
        return pass(std::move(extras));
    }
    std::unique_ptr<MptModel> model(new MptModel(file, std::move(*config), *extras));
    if (auto loaded = model->load_weights(file, options); !loaded) {
        return pass(std::move(loaded));
    }
    return model;
}

Result<MptModel::Extras> MptModel::read_extras(const GgufFile& file) {
    auto bias = real_in(file, "mpt.attention.max_alibi_bias", 0, 1e3f, 0);
    if (!bias) {
        return pass(std::move(bias));
    }
    auto clamp = real_in(file, "mpt.attention.clamp_kqv", 0, 1e6f, 0);
    if (!clamp) {
        return pass(std::move(clamp));
    }
    return Extras{*bias, *clamp};
}

MptModel::MptModel(const GgufFile& file, LlamaConfig config, Extras extras)
    : config_(std::move(config)), extras_(extras) {
    info_ = info_of(file, config_, "mpt");
}

Result<void> MptModel::load_weights(const GgufFile& file, const LoadOptions& options) {
    WeightsLoader loader(file, weights_options(options));
    outer_ = ask_outer(loader, config_);
    output_norm_bias_ = loader.find("output_norm.bias", {config_.n_embd}, Use::kAdd);
    position_embd_ =
        loader.find("position_embd.weight", {config_.n_embd, config_.n_ctx_train}, Use::kGetRows);
    for (uint32_t i = 0; i < config_.n_layer; i++) {
        layers_.push_back(ask_layer(loader, i));
    }
    info_.n_learned_pos = position_embd_ ? config_.n_ctx_train : 0;
    return load_asked(std::move(loader), options, memory_, info_);
}

MptModel::Layer MptModel::ask_layer(WeightsLoader& loader, uint32_t index) const {
    const std::string prefix = fmt::format("blk.{}.", index);
    const int64_t n_embd = config_.n_embd;
    const int64_t n_ff = config_.n_ff;
    const int64_t head_dim = config_.head_dim;
    const int64_t n_q = config_.n_head * head_dim;
    const int64_t n_kv = config_.n_head_kv[index] * head_dim;

    Layer layer;
    layer.attn_norm = ask_norm(loader, prefix + "attn_norm", n_embd);
    layer.qkv = ask_linear(loader, prefix + "attn_qkv", {n_embd, n_q + 2 * n_kv});
    // As in llama.cpp, a file without norms of queries has none of keys.
    if (loader.has(prefix + "attn_q_norm.weight")) {
        layer.q_norm = ask_norm(loader, prefix + "attn_q_norm", n_q);
        layer.k_norm = ask_norm(loader, prefix + "attn_k_norm", n_kv);
    }
    layer.o = ask_linear(loader, prefix + "attn_output", {n_q, n_embd});
    layer.ffn_norm = ask_norm(loader, prefix + "ffn_norm", n_embd);
    layer.up = ask_linear(loader, prefix + "ffn_up", {n_embd, n_ff});
    layer.act_scales = loader.find(prefix + "ffn.act.scales", {n_ff}, Use::kMul);
    layer.down = ask_linear(loader, prefix + "ffn_down", {n_ff, n_embd});
    // llama.cpp's graph reads no scales of these two.
    layer.up.scale = nullptr;
    layer.down.scale = nullptr;
    return layer;
}

MptModel::Norm MptModel::ask_norm(WeightsLoader& loader, const std::string& name, int64_t width) {
    return {loader.require(name + ".weight", {width}, Use::kMul),
            loader.find(name + ".bias", {width}, Use::kAdd)};
}

ggml_tensor* MptModel::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    ggml_tensor* x = embed(graph);
    for (uint32_t index = 0; index < config_.n_layer; index++) {
        const Layer& layer = layers_[index];
        ggml_tensor* attended = attention(graph, index, norm(graph, x, layer.attn_norm));
        if (index + 1 == config_.n_layer && !graph.keep_outputs(attended, x)) {
            return nullptr;
        }
        x = ggml_add(ctx, graph.linear(layer.o, attended), x);
        x = ggml_add(ctx, feed_forward(graph, layer, norm(graph, x, layer.ffn_norm)), x);
    }
    return graph.linear(outer_.output, norm(graph, x, {outer_.output_norm, output_norm_bias_}));
}

ggml_tensor* MptModel::embed(StepGraph& graph) const {
    ggml_tensor* x = graph.embed(outer_.token_embd);
    if (!position_embd_) return x;
    ggml_tensor* places = ggml_get_rows(graph.ctx(), position_embd_, graph.positions());
    return ggml_add(graph.ctx(), x, places);
}

ggml_tensor* MptModel::norm(StepGraph& graph, ggml_tensor* x, const Norm& weights) const {
    x = ggml_mul(graph.ctx(), ggml_norm(graph.ctx(), x, config_.norm_eps), weights.weight);
    return weights.bias ? ggml_add(graph.ctx(), x, weights.bias) : x;
}

ggml_tensor* MptModel::attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    ggml_context* ctx = graph.ctx();
    const Layer& layer = layers_[index];
    const int64_t n_head = config_.n_head;
    const int64_t n_head_kv = config_.n_head_kv[index];
    const int64_t head_dim = config_.head_dim;
    ggml_tensor* qkv = graph.linear(layer.qkv, x);
    if (extras_.clamp > 0) {
        qkv = ggml_clamp(ctx, qkv, -extras_.clamp, extras_.clamp);
    }
    ggml_tensor* q = heads_at(ctx, qkv, 0, head_dim, n_head);
    ggml_tensor* k = heads_at(ctx, qkv, n_head * head_dim, head_dim, n_head_kv);
    ggml_tensor* v = heads_at(ctx, qkv, (n_head + n_head_kv) * head_dim, head_dim, n_head_kv);
    if (layer.q_norm.weight) {
        const int64_t n = x->ne[1];
        q = norm(graph, ggml_cont_2d(ctx, q, n_head * head_dim, n), layer.q_norm);
        k = norm(graph, ggml_cont_2d(ctx, k, n_head_kv * head_dim, n), layer.k_norm);
        q = graph.heads(q, config_.n_head);
        k = graph.heads(k, config_.n_head_kv[index]);
    }
    return graph.attend(index, q, k, v,
                        {.scale = config_.attn_scale, .max_alibi_bias = extras_.max_alibi_bias});
}

ggml_tensor* MptModel::feed_forward(StepGraph& graph, const Layer& layer, ggml_tensor* x) const {
    ggml_tensor* wide = ggml_gelu(graph.ctx(), graph.linear(layer.up, x));
    if (layer.act_scales) {
        wide = ggml_div(graph.ctx(), wide, layer.act_scales);
    }
    return graph.linear(layer.down, wide);
}

}  // namespace cellar
