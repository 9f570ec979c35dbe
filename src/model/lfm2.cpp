#include "model/lfm2.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/metadata.h"
#include "model/step_graph.h"

namespace cellar {

namespace {

constexpr uint32_t kMaxConv = 256;

}  // namespace

Result<std::unique_ptr<Model>> Lfm2Model::load(const GgufFile& file, const LoadOptions& options) {
    auto config = read_llama_config(file, "lfm2", "attention.layer_norm_rms_epsilon",
                                    LayersWithoutHeads::kAllowed);
    if (!config) {
        return pass(std::move(config));
    }
    config->rope.rope.mode = GGML_ROPE_TYPE_NEOX;
    auto extras = read_extras(file);
    if (!extras) {
        return pass(std::move(extras));
    }
    std::unique_ptr<Lfm2Model> model(new Lfm2Model(file, std::move(*config), *extras));
    if (auto loaded = model->load_weights(file, options); !loaded) {
        return pass(std::move(loaded));
    }
    return model;
}

Result<Lfm2Model::Extras> Lfm2Model::read_extras(const GgufFile& file) {
    auto window = find_count_in(file, "lfm2.attention.sliding_window", 0,
                                std::numeric_limits<int32_t>::max());
    if (!window) {
        return pass(std::move(window));
    }
    auto d_conv = count_in(file, "lfm2.shortconv.l_cache", 2, kMaxConv);
    if (!d_conv) {
        return pass(std::move(d_conv));
    }
    return Extras{window->value_or(0), *d_conv};
}

Lfm2Model::Lfm2Model(const GgufFile& file, LlamaConfig config, Extras extras)
    : config_(std::move(config)), extras_(extras) {
    info_ = info_of(file, config_, "lfm2");
    set_groups();
}

// Layers of attention are the first group: some layer has heads.
void Lfm2Model::set_groups() {
    info_.kinds = {extras_.window > 0 ? GroupKind::sliding(extras_.window) : GroupKind::full()};
    for (uint32_t i = 0; i < config_.n_layer; i++) {
        if (attends(i)) continue;
        info_.kinds.resize(2, GroupKind::recurrent());
        info_.layers[i] = {1, 1, (extras_.d_conv - 1) * config_.n_embd, 0};
    }
}

Result<void> Lfm2Model::load_weights(const GgufFile& file, const LoadOptions& options) {
    WeightsLoader loader(file, weights_options(options));
    outer_ = ask_outer(loader, config_, "token_embd_norm.weight");
    for (uint32_t i = 0; i < config_.n_layer; i++) {
        layers_.push_back(ask_layer(loader, i));
    }
    return load_asked(std::move(loader), options, memory_, info_);
}

Lfm2Model::Layer Lfm2Model::ask_layer(WeightsLoader& loader, uint32_t index) const {
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
    layer.norm = norm("attn_norm", n_embd);
    if (attends(index)) {
        layer.q = ask_linear(loader, prefix + "attn_q", {n_embd, n_q});
        layer.k = ask_linear(loader, prefix + "attn_k", {n_embd, n_kv});
        layer.v = ask_linear(loader, prefix + "attn_v", {n_embd, n_kv});
        layer.q_norm = norm("attn_q_norm", head_dim);
        layer.k_norm = norm("attn_k_norm", head_dim);
        layer.o = ask_linear(loader, prefix + "attn_output", {n_q, n_embd});
        layer.o.bias = nullptr;
    } else {
        layer.in = matrix("shortconv.in_proj", n_embd, 3 * n_embd);
        layer.conv =
            loader.require(prefix + "shortconv.conv.weight", {extras_.d_conv, n_embd}, Use::kMul);
        layer.out = matrix("shortconv.out_proj", n_embd, n_embd);
    }
    layer.ffn_norm = norm("ffn_norm", n_embd);
    layer.gate = matrix("ffn_gate", n_embd, n_ff);
    layer.up = matrix("ffn_up", n_embd, n_ff);
    layer.down = matrix("ffn_down", n_ff, n_embd);
    return layer;
}

ggml_tensor* Lfm2Model::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    const float eps = config_.norm_eps;
    ggml_tensor* x = graph.embed(outer_.token_embd);
    for (uint32_t index = 0; index < config_.n_layer; index++) {
        const Layer& layer = layers_[index];
        ggml_tensor* normed = graph.rms_norm(x, layer.norm, eps);
        ggml_tensor* mixed =
            attends(index) ? attention(graph, index, normed) : convolution(graph, index, normed);
        if (index + 1 == config_.n_layer && !graph.keep_outputs(mixed, x)) {
            return nullptr;
        }
        x = ggml_add(ctx, graph.linear(attends(index) ? layer.o : layer.out, mixed), x);
        normed = graph.rms_norm(x, layer.ffn_norm, eps);
        x = ggml_add(ctx, graph.glu(GGML_GLU_OP_SWIGLU, layer.gate, layer.up, layer.down, normed),
                     x);
    }
    return graph.linear(outer_.output, graph.rms_norm(x, outer_.output_norm, eps));
}

std::optional<Rope> Lfm2Model::rope(uint32_t layer, uint32_t) const {
    if (!attends(layer)) return std::nullopt;
    return config_.rope.rope;
}

ggml_tensor* Lfm2Model::attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    const Layer& layer = layers_[index];
    const Rope rope = config_.rope.rope;
    const uint32_t n_head_kv = config_.n_head_kv[index];
    const float eps = config_.norm_eps;
    ggml_tensor* q = graph.heads(graph.linear(layer.q, x), config_.n_head);
    ggml_tensor* k = graph.heads(graph.linear(layer.k, x), n_head_kv);
    ggml_tensor* v = graph.heads(graph.linear(layer.v, x), n_head_kv);
    q = graph.rope(graph.rms_norm(q, layer.q_norm, eps), rope);
    k = graph.rope(graph.rms_norm(k, layer.k_norm, eps), rope);
    return graph.attend(index, q, k, v, {.scale = config_.attn_scale, .rope = &rope});
}

// One gate before the convolution, one behind it.
ggml_tensor* Lfm2Model::convolution(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    ggml_context* ctx = graph.ctx();
    const Layer& layer = layers_[index];
    const int64_t n_embd = config_.n_embd;
    ggml_tensor* made = graph.linear(layer.in, x);
    const auto third = [&](size_t nth) {
        return ggml_view_2d(ctx, made, n_embd, made->ne[1], made->nb[1],
                            made->nb[0] * static_cast<size_t>(n_embd) * nth);
    };
    ggml_tensor* passed = ggml_mul(ctx, third(0), third(2));
    ggml_tensor* convolved =
        graph.recurrence(index).convolve(index, Recurrence::Part::kFirst, passed, layer.conv);
    return ggml_mul(ctx, convolved, third(1));
}

}  // namespace cellar
