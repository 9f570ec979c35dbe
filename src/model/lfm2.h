#pragma once

#include <memory>
#include <vector>

#include "model/linear.h"
#include "model/llama_config.h"
#include "model/model.h"
#include "model/outer_weights.h"
#include "model/weights.h"

namespace cellar {

// Architecture `lfm2`: short gated convolutions, whose layers keep states, and between them layers
// of attention with norms on the heads of queries and keys.
class Lfm2Model : public Model {
public:
    // Errors: as read_llama_config's; kBadFile for a window or a convolution that makes no sense.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t layer, uint32_t n_ctx) const override;

private:
    // What `llama` has no setting for.
    struct Extras {
        uint32_t window = 0;  // of attention; 0: it sees everything
        uint32_t d_conv = 0;  // items that convolutions see
    };

    // Shapes are ggml's `ne`; n_q = n_head * head_dim, n_kv = n_head_kv[layer] * head_dim. A layer
    // has either the tensors of attention or those of a convolution.
    struct Layer {
        ggml_tensor* norm = nullptr;      // [n_embd]
        Linear q;                         // [n_embd, n_q]
        Linear k;                         // [n_embd, n_kv]
        Linear v;                         // [n_embd, n_kv]
        ggml_tensor* q_norm = nullptr;    // [head_dim]
        ggml_tensor* k_norm = nullptr;    // [head_dim]
        Linear o;                         // [n_q, n_embd]
        Linear in;                        // [n_embd, 3 n_embd]: two gates, and what they let pass
        ggml_tensor* conv = nullptr;      // [d_conv, n_embd]
        Linear out;                       // [n_embd, n_embd]
        ggml_tensor* ffn_norm = nullptr;  // [n_embd]
        Linear gate;                      // [n_embd, n_ff]
        Linear up;                        // [n_embd, n_ff]
        Linear down;                      // [n_ff, n_embd]
    };

    Lfm2Model(const GgufFile& file, LlamaConfig config, Extras extras);

    static Result<Extras> read_extras(const GgufFile& file);
    void set_groups();
    bool attends(uint32_t layer) const { return config_.n_head_kv[layer] > 0; }
    Result<void> load_weights(const GgufFile& file, const LoadOptions& options);
    Layer ask_layer(WeightsLoader& loader, uint32_t index) const;

    // x [n_embd, n_tokens] → [n_q, n_tokens], or [n_embd, n_tokens]: what is left is a product.
    ggml_tensor* attention(StepGraph& graph, uint32_t index, ggml_tensor* x) const;
    ggml_tensor* convolution(StepGraph& graph, uint32_t index, ggml_tensor* x) const;

    const LlamaConfig config_;
    const Extras extras_;
    OuterWeights outer_;
    std::vector<Layer> layers_;  // [n_layer]
    Weights memory_;             // what the tensors live in
};

}  // namespace cellar
