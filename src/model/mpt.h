#pragma once

#include <memory>
#include <vector>

#include "model/linear.h"
#include "model/llama_config.h"
#include "model/model.h"
#include "model/outer_weights.h"
#include "model/weights.h"

namespace cellar {

// Architecture `mpt`: distances bias attention (ALiBi) and nothing turns queries and keys; layer
// norms, one product for queries, keys and values, and a feed-forward network without a gate.
class MptModel : public Model {
public:
    // Errors: as read_llama_config's; kBadFile for clamps and biases that make no sense.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t, uint32_t) const override { return std::nullopt; }

private:
    // What `llama` has no setting for.
    struct Extras {
        float max_alibi_bias = 0;  // 0: no bias
        float clamp = 0;           // of queries, keys and values, to [-clamp, clamp]; 0: none
    };

    // A layer norm. What is null is left out.
    struct Norm {
        ggml_tensor* weight = nullptr;  // [n]
        ggml_tensor* bias = nullptr;    // [n]
    };

    // Shapes are ggml's `ne`; n_q = n_head * head_dim, n_kv = n_head_kv[layer] * head_dim.
    struct Layer {
        Norm attn_norm;  // [n_embd]
        Linear qkv;      // [n_embd, n_q + 2 n_kv]
        Norm q_norm;     // [n_q]; without weight: queries and keys are not normed
        Norm k_norm;     // [n_kv]
        Linear o;        // [n_q, n_embd]
        Norm ffn_norm;   // [n_embd]
        Linear up;       // [n_embd, n_ff]
        ggml_tensor* act_scales = nullptr;  // [n_ff] divides what is activated; may be null
        Linear down;                        // [n_ff, n_embd]
    };

    MptModel(const GgufFile& file, LlamaConfig config, Extras extras);

    static Result<Extras> read_extras(const GgufFile& file);
    Result<void> load_weights(const GgufFile& file, const LoadOptions& options);
    Layer ask_layer(WeightsLoader& loader, uint32_t index) const;
    static Norm ask_norm(WeightsLoader& loader, const std::string& name, int64_t width);

    ggml_tensor* embed(StepGraph& graph) const;
    ggml_tensor* norm(StepGraph& graph, ggml_tensor* x, const Norm& weights) const;
    // x [n_embd, n_tokens] → [n_q, n_tokens].
    ggml_tensor* attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const;
    // x [n_embd, n] → [n_embd, n].
    ggml_tensor* feed_forward(StepGraph& graph, const Layer& layer, ggml_tensor* x) const;

    const LlamaConfig config_;
    const Extras extras_;
    OuterWeights outer_;
    ggml_tensor* output_norm_bias_ = nullptr;  // [n_embd]; may be null
    ggml_tensor* position_embd_ = nullptr;     // [n_embd, n_ctx_train]; may be null
    std::vector<Layer> layers_;                // [n_layer]
    Weights memory_;                           // what the tensors live in
};

}  // namespace cellar
