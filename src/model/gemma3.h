#pragma once

#include <memory>
#include <vector>

#include "model/linear.h"
#include "model/llama_config.h"
#include "model/model.h"
#include "model/outer_weights.h"
#include "model/weights.h"

namespace cellar {

// Architecture `gemma3`: layers of which most see only a window of their sequence, with a rope of
// their own; a norm before and after each block, and norms on the heads of queries and keys.
class Gemma3Model : public Model {
public:
    // Errors: as read_llama_config's; kBadFile for windows and soft-caps that make no sense.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t layer, uint32_t n_ctx) const override;

private:
    // What `llama` has no setting for.
    struct Extras {
        uint32_t window = 0;        // of sliding layers; 0: the model has none
        std::vector<bool> sliding;  // [n_layer]
        float sliding_freq_base = 0;
        float logit_softcap = 0;  // 0: none
    };

    // Shapes are ggml's `ne`; n_q = n_head * head_dim, n_kv = n_head_kv[layer] * head_dim.
    struct Layer {
        ggml_tensor* attn_norm = nullptr;       // [n_embd]
        Linear q;                               // [n_embd, n_q]
        Linear k;                               // [n_embd, n_kv]
        Linear v;                               // [n_embd, n_kv]
        ggml_tensor* q_norm = nullptr;          // [head_dim]
        ggml_tensor* k_norm = nullptr;          // [head_dim]
        Linear o;                               // [n_q, n_embd]
        ggml_tensor* attn_post_norm = nullptr;  // [n_embd]
        ggml_tensor* ffn_norm = nullptr;        // [n_embd]
        Linear gate;                            // [n_embd, n_ff]
        Linear up;                              // [n_embd, n_ff]
        Linear down;                            // [n_ff, n_embd]
        ggml_tensor* ffn_post_norm = nullptr;   // [n_embd]
    };

    Gemma3Model(const GgufFile& file, LlamaConfig config, Extras extras);

    static Result<Extras> read_extras(const GgufFile& file, uint32_t n_layer);
    Result<void> load_weights(const GgufFile& file, const LoadOptions& options);
    Layer ask_layer(WeightsLoader& loader, uint32_t index) const;
    void set_groups();
    float attn_scale() const;
    ggml_tensor* attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const;

    const LlamaConfig config_;
    const Extras extras_;
    OuterWeights outer_;
    std::vector<Layer> layers_;  // [n_layer]
    Weights memory_;             // what the tensors live in
};

}  // namespace cellar
