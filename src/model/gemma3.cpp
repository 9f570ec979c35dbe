#include "model/gemma3.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/metadata.h"
#include "model/step_graph.h"

namespace cellar {

namespace {

constexpr uint32_t kFullEvery = 6;  // where the file does not say which layers slide

// A number n says that every n-th layer sees everything, a list says of each layer if it slides.
Result<std::vector<bool>> read_pattern(const GgufFile& file, uint32_t n_layer) {
    constexpr const char* kKey = "gemma3.attention.sliding_window_pattern";
    std::vector<bool> sliding(n_layer);
    auto period = find_count_in(file, kKey, 1, std::numeric_limits<int32_t>::max());
    if (period) {
        const uint32_t every = period->value_or(kFullEvery);
        for (uint32_t i = 0; i < n_layer; i++) {
            sliding[i] = i % every + 1 < every;
        }
        return sliding;
    }
    auto flags = find_counts_in(file, kKey, n_layer, 0, 1);
    if (!flags) {
        return pass(std::move(flags));
    }
    std::copy((*flags)->begin(), (*flags)->end(), sliding.begin());
    return sliding;
}

}  // namespace

Result<std::unique_ptr<Model>> Gemma3Model::load(const GgufFile& file, const LoadOptions& options) {
    auto config = read_llama_config(file, "gemma3");
    if (!config) {
        return pass(std::move(config));
    }
    if (auto ok = override_rope(config->rope, options.rope); !ok) {
        return pass(std::move(ok));
    }
    config->rope.rope.mode = GGML_ROPE_TYPE_NEOX;
    auto extras = read_extras(file, config->n_layer);
    if (!extras) {
        return pass(std::move(extras));
    }
    std::unique_ptr<Gemma3Model> model(
        new Gemma3Model(file, std::move(*config), std::move(*extras)));
    if (auto loaded = model->load_weights(file, options); !loaded) {
        return pass(std::move(loaded));
    }
    return model;
}

Result<Gemma3Model::Extras> Gemma3Model::read_extras(const GgufFile& file, uint32_t n_layer) {
    Extras extras;
    auto window = find_count_in(file, "gemma3.attention.sliding_window", 0,
                                std::numeric_limits<int32_t>::max());
    if (!window) {
        return pass(std::move(window));
    }
    auto sliding = read_pattern(file, n_layer);
    if (!sliding) {
        return pass(std::move(sliding));
    }
    auto base = real_in(file, "gemma3.rope.freq_base_swa", 1, 1e12f, 10000);
    if (!base) {
        return pass(std::move(base));
    }
    auto softcap = real_in(file, "gemma3.final_logit_softcapping", 0, 1e6f, 0);
    if (!softcap) {
        return pass(std::move(softcap));
    }
    extras.window = window->value_or(0);
    extras.sliding = extras.window > 0 ? std::move(*sliding) : std::vector<bool>(n_layer, false);
    extras.sliding_freq_base = *base;
    extras.logit_softcap = *softcap;
    return extras;
}

Gemma3Model::Gemma3Model(const GgufFile& file, LlamaConfig config, Extras extras)
    : config_(std::move(config)), extras_(std::move(extras)) {
    info_ = info_of(file, config_, "gemma3");
    set_groups();
}

// Layers that see everything are the first group, if there are any.
void Gemma3Model::set_groups() {
    const auto n_sliding = std::count(extras_.sliding.begin(), extras_.sliding.end(), true);
    if (n_sliding < config_.n_layer) {
        info_.kinds.push_back(GroupKind::full());
    }
    const auto sliding_group = static_cast<uint32_t>(info_.kinds.size());
    if (n_sliding > 0) {
        info_.kinds.push_back(GroupKind::sliding(extras_.window));
    }
    for (uint32_t i = 0; i < config_.n_layer; i++) {
        info_.layers[i].group = extras_.sliding[i] ? sliding_group : 0;
    }
}

Result<void> Gemma3Model::load_weights(const GgufFile& file, const LoadOptions& options) {
    WeightsLoader loader(file, weights_options(options));
    outer_ = ask_outer(loader, config_);
    for (uint32_t i = 0; i < config_.n_layer; i++) {
        layers_.push_back(ask_layer(loader, i));
    }
    return load_asked(std::move(loader), options, memory_, info_);
}

Gemma3Model::Layer Gemma3Model::ask_layer(WeightsLoader& loader, uint32_t index) const {
    const std::string prefix = fmt::format("blk.{}.", index);
    const int64_t n_embd = config_.n_embd;
    const int64_t n_ff = config_.n_ff;
    const int64_t head_dim = config_.head_dim;
    const int64_t n_q = config_.n_head * head_dim;
    const int64_t n_kv = config_.n_head_kv[index] * head_dim;
    const auto norm = [&](const char* name, int64_t width) {
        return loader.require(prefix + name + ".weight", {width}, Use::kMul);
    };
    // llama.cpp's graph reads neither biases nor scales of these.
    const auto matrix = [&](const char* name, int64_t n_in, int64_t n_out) {
        const std::string weight = prefix + name + ".weight";
        return Linear{loader.require(weight, {n_in, n_out}, Use::kMulMat), nullptr, nullptr};
    };

    Layer layer;
    layer.attn_norm = norm("attn_norm", n_embd);
    layer.q = ask_linear(loader, prefix + "attn_q", {n_embd, n_q});
    layer.k = ask_linear(loader, prefix + "attn_k", {n_embd, n_kv});
    layer.v = ask_linear(loader, prefix + "attn_v", {n_embd, n_kv});
    layer.q_norm = norm("attn_q_norm", head_dim);
    layer.k_norm = norm("attn_k_norm", head_dim);
    layer.o = ask_linear(loader, prefix + "attn_output", {n_q, n_embd});
    layer.o.bias = nullptr;
    layer.attn_post_norm = norm("post_attention_norm", n_embd);
    layer.ffn_norm = norm("ffn_norm", n_embd);
    layer.gate = matrix("ffn_gate", n_embd, n_ff);
    layer.up = matrix("ffn_up", n_embd, n_ff);
    layer.down = matrix("ffn_down", n_ff, n_embd);
    layer.ffn_post_norm = norm("post_ffw_norm", n_embd);
    return layer;
}

ggml_tensor* Gemma3Model::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    const float eps = config_.norm_eps;
    ggml_tensor* x = ggml_scale(ctx, graph.embed(outer_.token_embd),
                                std::sqrt(static_cast<float>(config_.n_embd)));
    for (uint32_t index = 0; index < config_.n_layer; index++) {
        const Layer& layer = layers_[index];
        ggml_tensor* attended = attention(graph, index, graph.rms_norm(x, layer.attn_norm, eps));
        if (index + 1 == config_.n_layer && !graph.keep_outputs(attended, x)) {
            return nullptr;
        }
        attended = graph.rms_norm(graph.linear(layer.o, attended), layer.attn_post_norm, eps);
        x = ggml_add(ctx, attended, x);
        ggml_tensor* normed = graph.rms_norm(x, layer.ffn_norm, eps);
        ggml_tensor* fed = graph.glu(GGML_GLU_OP_GEGLU, layer.gate, layer.up, layer.down, normed);
        x = ggml_add(ctx, graph.rms_norm(fed, layer.ffn_post_norm, eps), x);
    }
    ggml_tensor* logits = graph.linear(outer_.output, graph.rms_norm(x, outer_.output_norm, eps));
    const float cap = extras_.logit_softcap;
    if (cap > 0) {
        logits = ggml_scale(ctx, ggml_tanh(ctx, ggml_scale(ctx, logits, 1 / cap)), cap);
    }
    return logits;
}

ggml_tensor* Gemma3Model::attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    const Layer& layer = layers_[index];
    const Rope rope = *this->rope(index, graph.n_ctx());
    const uint32_t n_head_kv = config_.n_head_kv[index];
    const float eps = config_.norm_eps;
    ggml_tensor* q = graph.heads(graph.linear(layer.q, x), config_.n_head);
    ggml_tensor* k = graph.heads(graph.linear(layer.k, x), n_head_kv);
    ggml_tensor* v = graph.heads(graph.linear(layer.v, x), n_head_kv);
    q = graph.rope(graph.rms_norm(q, layer.q_norm, eps), rope);
    k = graph.rope(graph.rms_norm(k, layer.k_norm, eps), rope);
    return graph.attend(index, q, k, v, {.scale = attn_scale(), .rope = &rope});
}

// Sliding layers have a base of their own, and were not stretched to longer contexts.
std::optional<Rope> Gemma3Model::rope(uint32_t layer, uint32_t) const {
    Rope rope = config_.rope.rope;
    if (extras_.sliding[layer]) {
        rope.freq_base = extras_.sliding_freq_base;
        rope.freq_scale = 1.0f;
    }
    return rope;
}

// Gemma 3 27B, the one of 62 layers, scales by the embedding's share of a head instead.
float Gemma3Model::attn_scale() const {
    constexpr uint32_t kLayersOf27B = 62;
    if (config_.n_layer != kLayersOf27B) return config_.attn_scale;
    const uint32_t share = config_.n_embd / config_.n_head;
    return 1.0f / std::sqrt(static_cast<float>(share));
}

}  // namespace cellar
