#pragma once

#include <ggml.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf_file.h"
#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "model/loading.h"
#include "model/model.h"
#include "model/offload.h"
#include "model/step_graph.h"

namespace cellar::testing {

// By layer whose keys and values it attends to: its own, or those of the earlier layer with this
// index. None: the layer does not attend, and is its feed-forward network alone.
using Owners = std::vector<std::optional<uint32_t>>;

// A llama of whose layers some keep keys and values, and others share them or have none, as in
// Gemma 3n and Nemotron-H. Weights that it has no use for are left alone.
class SharingLlama : public Model {
public:
    static std::unique_ptr<Model> load(const std::string& path, Owners owners,
                                       const std::vector<Offload>& offloads = {}) {
        const auto file = GgufFile::open(path);
        EXPECT_TRUE(file) << file.error().message;
        auto config = read_llama_config(*file);
        EXPECT_TRUE(config) << config.error().message;
        auto weights = load_llama(*file, *config, {.offloads = offloads});
        EXPECT_TRUE(weights) << weights.error().message;
        ModelInfo info = info_of(*file, *config, "llama");
        const auto placed = place_layers(*file, offloads);
        EXPECT_TRUE(placed) << placed.error().message;
        note_devices(info, *placed);
        for (uint32_t i = 0; i < owners.size(); i++) {
            if (!owners[i]) {
                info.layers[i] = LayerKv::none();
            } else if (*owners[i] != i) {
                info.layers[i].shares = owners[i];
            }
        }
        return std::unique_ptr<Model>(new SharingLlama(std::move(info), std::move(owners),
                                                       *std::move(config), *std::move(weights)));
    }

    ggml_tensor* build(StepGraph& graph) const override {
        ggml_tensor* x = graph.embed(weights_.outer.token_embd);
        for (uint32_t i = 0; i < config_.n_layer; i++) {
            if (owners_[i]) {
                ggml_tensor* attended = attention(graph, i, normed(graph, x, layer(i).attn_norm));
                if (i + 1 == config_.n_layer && !graph.keep_outputs(attended, x)) return nullptr;
                x = ggml_add(graph.ctx(), graph.linear(layer(i).o, attended), x);
            }
            ggml_tensor* wide = normed(graph, x, layer(i).ffn_norm);
            x = ggml_add(
                graph.ctx(),
                graph.glu(GGML_GLU_OP_SWIGLU, layer(i).gate, layer(i).up, layer(i).down, wide), x);
        }
        return graph.linear(weights_.outer.output, normed(graph, x, weights_.outer.output_norm));
    }

    // As a model answers that has one rope for all of its layers.
    std::optional<Rope> rope(uint32_t, uint32_t n_ctx) const override {
        Rope rope = config_.rope.rope;
        rope.mode = GGML_ROPE_TYPE_NORMAL;
        rope.factors = weights_.rope_factors(n_ctx, rope);
        return rope;
    }

private:
    SharingLlama(ModelInfo info, Owners owners, LlamaConfig config, LlamaWeights weights)
        : owners_(std::move(owners)), config_(std::move(config)), weights_(std::move(weights)) {
        info_ = std::move(info);
    }

    const LlamaLayer& layer(uint32_t i) const { return weights_.layers[i]; }

    ggml_tensor* normed(StepGraph& graph, ggml_tensor* x, ggml_tensor* weight) const {
        return graph.rms_norm(x, weight, config_.norm_eps);
    }

    ggml_tensor* attention(StepGraph& graph, uint32_t i, ggml_tensor* x) const {
        const Rope rope = *this->rope(i, graph.n_ctx());
        ggml_tensor* q = graph.heads(graph.linear(layer(i).q, x), config_.n_head);
        ggml_tensor *k = nullptr, *v = nullptr;
        if (owners_[i] == i) {
            k = graph.rope(graph.heads(graph.linear(layer(i).k, x), config_.n_head_kv[i]), rope);
            v = graph.heads(graph.linear(layer(i).v, x), config_.n_head_kv[i]);
        }
        return graph.attend(i, graph.rope(q, rope), k, v,
                            {.scale = config_.attn_scale, .rope = &rope});
    }

    const Owners owners_;
    const LlamaConfig config_;
    const LlamaWeights weights_;
};

}  // namespace cellar::testing
