#pragma once

#include <memory>

#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "model/model.h"

namespace cellar {

// Architecture `llama`: pre-norm blocks of rotary attention and a gated feed-forward network.
class LlamaModel : public Model {
public:
    // Errors: as read_llama_config's and load_llama's.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t layer, uint32_t n_ctx) const override;

private:
    LlamaModel(const GgufFile& file, LlamaConfig config, LlamaWeights weights);

    // x [n_embd, n_tokens] → [n_head * head_dim, n_tokens].
    ggml_tensor* attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const;

    const LlamaConfig config_;
    const LlamaWeights weights_;
};

}  // namespace cellar
