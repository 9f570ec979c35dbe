#pragma once

#include <memory>
#include <string_view>

#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "model/model.h"

namespace cellar {

// What sets apart an architecture that is built like `llama`. Biases need no mention: those that a
// file has are added.
struct LlamaTraits {
    std::string_view architecture;
    int rope_mode;    // GGML_ROPE_TYPE_*
    bool head_norms;  // a norm on each head of queries and keys, before they are turned
};

// Architecture `llama`: pre-norm blocks of rotary attention and a gated feed-forward network.
class LlamaModel : public Model {
public:
    // Errors: as read_llama_config's and load_llama's.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);
    static Result<std::unique_ptr<Model>> load_like(const GgufFile& file,
                                                    const LoadOptions& options,
                                                    const LlamaTraits& traits);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t layer, uint32_t n_ctx) const override;

private:
    LlamaModel(ModelInfo info, LlamaConfig config, LlamaWeights weights);

    // x [head_dim, n_head, n_tokens], normed by head if `norm` is given, and turned.
    ggml_tensor* turned(StepGraph& graph, ggml_tensor* x, ggml_tensor* norm,
                        const Rope& rope) const;
    // x [n_embd, n_tokens] → [n_head * head_dim, n_tokens].
    ggml_tensor* attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const;

    const LlamaConfig config_;
    const LlamaWeights weights_;
};

}  // namespace cellar
