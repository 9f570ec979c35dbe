#include "model/step_graph.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <cassert>
#include <utility>

namespace cellar {

namespace {

// Far more than any layer makes (llama: 40 with all biases). Unused room is never touched memory.
constexpr size_t kTensorsPerLayer = 128;
constexpr size_t kTensorsPerState = 32;  // of a layer in a recurrent group
constexpr size_t kTensorsBesides = 256;

size_t max_tensors(const Memory& memory, const StepShape& shape) {
    const size_t per_layer = kTensorsPerLayer + kTensorsPerState * shape.runs.n_states;
    return kTensorsBesides + per_layer * memory.config().layers.size();
}

void set(ggml_tensor* tensor, std::span<const int32_t> values) {
    ggml_backend_tensor_set(tensor, values.data(), 0, values.size_bytes());
}

}  // namespace

StepGraph::StepGraph(const Memory& memory, StepShape shape, const AttentionParts& parts,
                     AttentionWorkspace& workspace)
    : memory_(memory), shape_(std::move(shape)), parts_(parts) {
    const size_t n = max_tensors(memory, shape_);
    ctx_.reset(
        ggml_init({.mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false),
                   .mem_buffer = nullptr,
                   .no_alloc = true}));
    graph_ = ggml_new_graph_custom(ctx(), n, false);
    for (size_t i = 0; i < parts.parts.size(); i++) {
        attention_.push_back(Attention::create(ctx(), memory, parts.parts[i].group,
                                               shape_.attention[i], parts.parts[i].options,
                                               &workspace));
    }
    recurrence_.resize(memory.cells().n_groups());
    for (uint32_t group = 0; group < recurrence_.size(); group++) {
        if (!memory.cells().kind(group).is_recurrent()) continue;
        recurrence_[group] = std::make_unique<Recurrence>(ctx(), graph_, memory, group,
                                                          shape_.n_tokens, shape_.runs);
    }
}

ggml_tensor* StepGraph::input(ggml_tensor* tensor, const char* name) {
    ggml_set_input(tensor);
    ggml_set_name(tensor, name);
    return tensor;
}

ggml_tensor* StepGraph::embed(ggml_tensor* table) {
    if (!tokens_) {
        tokens_ = input(ggml_new_tensor_1d(ctx(), GGML_TYPE_I32, shape_.n_tokens), "tokens");
    }
    return ggml_get_rows(ctx(), table, tokens_);
}

ggml_tensor* StepGraph::rms_norm(ggml_tensor* x, ggml_tensor* weight, float eps) {
    return ggml_mul(ctx(), ggml_rms_norm(ctx(), x, eps), weight);
}

ggml_tensor* StepGraph::linear(const Linear& weights, ggml_tensor* x) {
    ggml_tensor* y = ggml_mul_mat(ctx(), weights.weight, x);
    if (weights.scale) {
        y = ggml_mul(ctx(), y, weights.scale);
    }
    if (weights.bias) {
        y = ggml_add(ctx(), y, weights.bias);
    }
    return y;
}

ggml_tensor* StepGraph::heads(ggml_tensor* x, uint32_t n_head) {
    return ggml_reshape_3d(ctx(), x, x->ne[0] / n_head, n_head, x->ne[1]);
}

ggml_tensor* StepGraph::positions() {
    if (!positions_) {
        const int64_t n = int64_t{shape_.n_tokens} * memory_.config().n_pos;
        positions_ = input(ggml_new_tensor_1d(ctx(), GGML_TYPE_I32, n), "positions");
    }
    return positions_;
}

ggml_tensor* StepGraph::rope(ggml_tensor* x, const Rope& rope) {
    return apply_rope(ctx(), x, positions(), rope);
}

ggml_tensor* StepGraph::attend(uint32_t layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                               const AttendParams& params) {
    assert(parts_.of_layer[layer] && "the layer attends to nothing");
    return attention_[*parts_.of_layer[layer]]->attend(graph_, layer, q, k, v, params);
}

Recurrence& StepGraph::recurrence(uint32_t layer) {
    const uint32_t group = memory_.config().layers[layer].group;
    assert(memory_.keeps(layer) && recurrence_[group] != nullptr && "the layer keeps no states");
    return *recurrence_[group];
}

// llama.cpp scales a feed-forward product after its bias, and any other before.
ggml_tensor* StepGraph::linear_in_ffn(const Linear& weights, ggml_tensor* x) {
    ggml_tensor* y = linear({weights.weight, weights.bias, nullptr}, x);
    return weights.scale ? ggml_mul(ctx(), y, weights.scale) : y;
}

ggml_tensor* StepGraph::glu(ggml_glu_op op, const Linear& gate, const Linear& up,
                            const Linear& down, ggml_tensor* x) {
    ggml_tensor* wide = ggml_glu_split(ctx(), linear_in_ffn(gate, x), linear_in_ffn(up, x), op);
    return linear_in_ffn(down, wide);
}

bool StepGraph::keep_outputs(ggml_tensor*& a, ggml_tensor*& b) {
    a = outputs(a);
    b = outputs(b);
    return b != nullptr;
}

ggml_tensor* StepGraph::outputs(ggml_tensor* x) {
    if (shape_.n_outputs == shape_.n_tokens) {
        return x;
    }
    if (shape_.n_outputs == 0) {
        // Attention's inputs stay part of the graph even if this layer alone used them.
        ggml_build_forward_expand(graph_, x);
        return nullptr;
    }
    if (!rows_) {
        rows_ = input(ggml_new_tensor_1d(ctx(), GGML_TYPE_I32, shape_.n_outputs), "output_rows");
    }
    return ggml_get_rows(ctx(), x, rows_);
}

void StepGraph::finish(ggml_tensor* logits) {
    logits_ = logits;
    if (logits_) {
        ggml_set_output(logits_);
        ggml_set_name(logits_, "logits");
        ggml_build_forward_expand(graph_, logits_);
    }
}

void StepGraph::reserve() {
    for (const auto& attention : attention_) {
        attention->reserve();
    }
}

void StepGraph::set_inputs(const Batch& batch, const UbatchPlan& ubatch,
                           std::span<const uint32_t> rows, std::span<const AttentionPlan> plans) {
    const size_t n_tokens = ubatch.items.size();
    std::vector<int32_t> values(n_tokens);
    for (size_t i = 0; i < n_tokens; i++) {
        values[i] = batch.token(ubatch.items[i]);
    }
    set(tokens_, values);
    if (positions_) {
        const size_t n_pos = batch.n_pos();
        values.resize(n_tokens * n_pos);
        for (size_t i = 0; i < values.size(); i++) {
            values[i % n_pos * n_tokens + i / n_pos] = ubatch.positions[i];
        }
        set(positions_, values);
    }
    if (rows_) {
        values.assign(rows.begin(), rows.end());
        set(rows_, values);
    }
    for (size_t part = 0; part < attention_.size(); part++) {
        attention_[part]->set_inputs(plans[part], ubatch);
    }
    for (size_t group = 0; group < recurrence_.size(); group++) {
        if (recurrence_[group]) recurrence_[group]->set_inputs(ubatch.groups[group]);
    }
}

}  // namespace cellar
