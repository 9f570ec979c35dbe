#include "model/llama.h"

#include <ggml.h>

#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/step_graph.h"

namespace cellar {

Result<std::unique_ptr<Model>> LlamaModel::load(const GgufFile& file, const LoadOptions& options) {
    return load_like(file, options, {"llama", GGML_ROPE_TYPE_NORMAL, false});
}

Result<std::unique_ptr<Model>> LlamaModel::load_like(const GgufFile& file,
                                                     const LoadOptions& options,
                                                     const LlamaTraits& traits) {
    auto config = read_llama_config(file, traits.architecture);
    if (!config) {
        return pass(std::move(config));
    }
    if (auto ok = override_rope(config->rope, options.rope); !ok) {
        return pass(std::move(ok));
    }
    config->rope.rope.mode = traits.rope_mode;
    config->head_norms = traits.head_norms;
    auto weights = load_llama(file, *config, weights_options(options), progress_of(options));
    if (!weights) {
        return pass(std::move(weights));
    }
    ModelInfo info = info_of(file, *config, traits.architecture);
    return std::unique_ptr<Model>(
        new LlamaModel(std::move(info), std::move(*config), std::move(*weights)));
}

LlamaModel::LlamaModel(ModelInfo info, LlamaConfig config, LlamaWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {
    info_ = std::move(info);
    info_.weight_bytes = weights_.memory.bytes();
}

ggml_tensor* LlamaModel::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    ggml_tensor* x = graph.embed(weights_.outer.token_embd);
    for (uint32_t index = 0; index < config_.n_layer; index++) {
        const LlamaLayer& layer = weights_.layers[index];
        ggml_tensor* attended =
            attention(graph, index, graph.rms_norm(x, layer.attn_norm, config_.norm_eps));
        if (index + 1 == config_.n_layer && !graph.keep_outputs(attended, x)) {
            return nullptr;
        }
        x = ggml_add(ctx, graph.linear(layer.o, attended), x);
        ggml_tensor* normed = graph.rms_norm(x, layer.ffn_norm, config_.norm_eps);
        x = ggml_add(ctx, graph.glu(GGML_GLU_OP_SWIGLU, layer.gate, layer.up, layer.down, normed),
                     x);
    }
    return graph.linear(weights_.outer.output,
                        graph.rms_norm(x, weights_.outer.output_norm, config_.norm_eps));
}

std::optional<Rope> LlamaModel::rope(uint32_t, uint32_t n_ctx) const {
    Rope rope = config_.rope.rope;
    rope.factors = weights_.rope_factors(n_ctx, rope);
    return rope;
}

ggml_tensor* LlamaModel::attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const {
    const LlamaLayer& layer = weights_.layers[index];
    const Rope rope = *this->rope(index, graph.n_ctx());
    const uint32_t n_head_kv = config_.n_head_kv[index];
    ggml_tensor* q = graph.heads(graph.linear(layer.q, x), config_.n_head);
    ggml_tensor* k = graph.heads(graph.linear(layer.k, x), n_head_kv);
    ggml_tensor* v = graph.heads(graph.linear(layer.v, x), n_head_kv);
    q = turned(graph, q, layer.q_norm, rope);
    k = turned(graph, k, layer.k_norm, rope);
    return graph.attend(index, q, k, v, {.scale = config_.attn_scale, .rope = &rope});
}

ggml_tensor* LlamaModel::turned(StepGraph& graph, ggml_tensor* x, ggml_tensor* norm,
                                const Rope& rope) const {
    return graph.rope(norm ? graph.rms_norm(x, norm, config_.norm_eps) : x, rope);
}

}  // namespace cellar
