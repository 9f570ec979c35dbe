#pragma once

#include <memory>
#include <vector>

#include "model/linear.h"
#include "model/llama_config.h"
#include "model/model.h"
#include "model/outer_weights.h"
#include "model/recurrence.h"
#include "model/weights.h"

namespace cellar {

// Architecture `mamba`: layers of a short convolution and a selective scan, whose states are all
// that is kept of a sequence.
class MambaModel : public Model {
public:
    // Errors: kBadFile for missing keys and numbers that make no sense, and as WeightsLoader's.
    static Result<std::unique_ptr<Model>> load(const GgufFile& file, const LoadOptions& options);

    ggml_tensor* build(StepGraph& graph) const override;
    std::optional<Rope> rope(uint32_t, uint32_t) const override { return std::nullopt; }

private:
    struct Config {
        LlamaConfig outer;     // only its n_layer, n_embd, n_vocab, n_ctx_train and norm_eps
        uint32_t d_conv = 0;   // items that the convolution sees
        uint32_t d_inner = 0;  // channels
        uint32_t d_state = 0;  // numbers of a channel's state
        uint32_t dt_rank = 0;
        bool norms = false;  // RMS norms, without weights, of what dt, b and c are made from
    };

    // Shapes are ggml's `ne`.
    struct Layer {
        ggml_tensor* norm = nullptr;       // [n_embd]
        Linear in;                         // [n_embd, 2 d_inner]: what is scanned, and its gate
        ggml_tensor* conv = nullptr;       // [d_conv, d_inner]
        ggml_tensor* conv_bias = nullptr;  // [d_inner]
        Linear x;                          // [d_inner, dt_rank + 2 d_state]: dt, b and c
        Linear dt;                         // [dt_rank, d_inner]
        ggml_tensor* a = nullptr;          // [d_state, d_inner]
        ggml_tensor* d = nullptr;          // [d_inner]
        Linear out;                        // [d_inner, n_embd]
    };

    MambaModel(const GgufFile& file, Config config);

    static Result<Config> read_config(const GgufFile& file);
    Result<void> load_weights(const GgufFile& file, const LoadOptions& options);
    Layer ask_layer(WeightsLoader& loader, uint32_t index) const;

    // x [d_inner, n_tokens], convolved → [d_inner, n_tokens].
    ggml_tensor* scan(StepGraph& graph, uint32_t index, ggml_tensor* x) const;

    const Config config_;
    OuterWeights outer_;
    std::vector<Layer> layers_;  // [n_layer]
    Weights memory_;             // what the tensors live in
};

}  // namespace cellar
