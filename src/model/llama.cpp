#include "model/llama.h"

#include <ggml.h>

#include <utility>

#include "gguf/gguf_file.h"
#include "model/loading.h"
#include "model/step_graph.h"

namespace cellar {

Result<std::unique_ptr<Model>> LlamaModel::load(const GgufFile& file, const LoadOptions& options) {
    auto config = read_llama_config(file);
    if (!config) {
        return pass(std::move(config));
    }
    auto weights = load_llama(file, *config, weights_options(options), progress_of(options));
    if (!weights) {
        return pass(std::move(weights));
    }
    return std::unique_ptr<Model>(new LlamaModel(file, std::move(*config), std::move(*weights)));
}

LlamaModel::LlamaModel(const GgufFile& file, LlamaConfig config, LlamaWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {
    info_ = info_of(file, config_, "llama");
    info_.weight_bytes = weights_.memory.bytes();
}

ggml_tensor* LlamaModel::build(StepGraph& graph) const {
    ggml_context* ctx = graph.ctx();
    ggml_tensor* x = graph.embed(weights_.outer.token_embd);
    for (uint32_t index = 0; index < config_.n_layer; index++) {
        const LlamaLayer& layer = weights_.layers[index];
        ggml_tensor* attended =
            attention(graph, index, graph.rms_norm(x, layer.attn_norm, config_.rms_eps));
        if (index + 1 == config_.n_layer) {
            attended = graph.outputs(attended);
            x = graph.outputs(x);
            if (!x) {
                return nullptr;
            }
        }
        x = ggml_add(ctx, graph.linear(layer.o, attended), x);
        ggml_tensor* normed = graph.rms_norm(x, layer.ffn_norm, config_.rms_eps);
        x = ggml_add(ctx, graph.glu(GGML_GLU_OP_SWIGLU, layer.gate, layer.up, layer.down, normed),
                     x);
    }
    return graph.linear(weights_.outer.output,
                        graph.rms_norm(x, weights_.outer.output_norm, config_.rms_eps));
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
    ggml_tensor* q = graph.rope(graph.heads(graph.linear(layer.q, x), config_.n_head), rope);
    ggml_tensor* k = graph.rope(graph.heads(graph.linear(layer.k, x), n_head_kv), rope);
    ggml_tensor* v = graph.heads(graph.linear(layer.v, x), n_head_kv);
    return graph.attend(index, q, k, v, {.scale = config_.attn_scale, .rope = &rope});
}

}  // namespace cellar
