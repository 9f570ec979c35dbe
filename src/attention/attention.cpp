#include "attention/attention.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <bit>
#include <cassert>

#include "attention/graph_attention.h"
#include "attention/input_writer.h"
#include "attention/kernel_attention.h"

namespace cellar {

bool kernel_reads(const Memory& memory, uint32_t layer) {
    return ggml_backend_buffer_is_host(memory.k(layer)->buffer) &&
           ggml_backend_buffer_is_host(memory.v(layer)->buffer);
}

AttentionPlan plan_attention(const Memory& memory, const UbatchPlan& ubatch, uint32_t group,
                             const AttentionOptions& options) {
    assert(!memory.cells().kind(group).is_recurrent());
    if (options.path == AttentionPath::kGraph) {
        return make_schedule(memory.cells(), ubatch, group);
    }
    return make_cascade(memory.cells(), ubatch, group, options.share);
}

uint64_t attended_cells(const AttentionPlan& plan) {
    return std::visit([](const auto& made) { return made.attended_cells; }, plan);
}

uint64_t read_cells(const AttentionPlan& plan) {
    return std::visit([](const auto& made) { return made.read_cells; }, plan);
}

AttentionShape shape_of(const AttentionPlan& plan) {
    if (const auto* schedule = std::get_if<Schedule>(&plan)) {
        return {schedule->n_tokens, schedule->n_streams, schedule->length, schedule->in_order,
                schedule->turns.empty() ? 0u : 1u};
    }
    const auto& cascade = std::get<Cascade>(plan);
    AttentionShape shape{.n_tokens = cascade.n_tokens};
    const auto n_turned = static_cast<uint32_t>(cascade.turned.size());
    if (n_turned > 0) shape.n_turned = std::bit_ceil(n_turned);
    return shape;
}

AttentionShape widest_shape(const Memory& memory, uint32_t group, uint32_t n_tokens,
                            const AttentionOptions& options) {
    assert(!memory.cells().kind(group).is_recurrent());
    if (options.path == AttentionPath::kKernel) {
        return {.n_tokens = n_tokens, .n_turned = std::bit_ceil(n_tokens)};
    }
    const PagePool& pool = memory.cells().pool(group);
    return {n_tokens, 1, length_class(pool.max_pages() * pool.page_size()), true, 1};
}

std::unique_ptr<Attention> Attention::create(ggml_context* ctx, const Memory& memory,
                                             uint32_t group, const AttentionShape& shape,
                                             const AttentionOptions& options,
                                             AttentionWorkspace* workspace) {
    if (options.path == AttentionPath::kGraph) {
        return std::make_unique<GraphAttention>(ctx, memory, group, shape, options.flash);
    }
    return std::make_unique<KernelAttention>(ctx, memory, group, shape, *workspace);
}

Attention::Attention(ggml_context* ctx, const Memory& memory, uint32_t group, uint32_t n_tokens)
    : ctx_(ctx), memory_(memory), group_(group), kept_(memory.config().layers.size()) {
    cells_ = input(ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_tokens), "cells");
}

ggml_tensor* Attention::input(ggml_tensor* tensor, const char* name) const {
    ggml_set_input(tensor);
    ggml_format_name(tensor, "%s_%u", name, group_);
    return tensor;
}

Attention::Kept Attention::keep(ggml_cgraph* graph, uint32_t layer, ggml_tensor* k,
                                ggml_tensor* v) {
    const LayerKv& kv = memory_.config().layers[layer];
    assert(kv.group == group_ && !kv.keeps_none() && "the layer attends to nothing of this group");
    assert((k == nullptr) == kv.shares.has_value() && (v == nullptr) == kv.shares.has_value() &&
           "a layer gives k and v unless it shares another's");
    if (kv.shares) {
        assert(kept_[*kv.shares].k != nullptr && "its owner attends before it");
        return kept_[*kv.shares];
    }
    assert(k->ne[0] == kv.head_dim_k && k->ne[1] == kv.n_head_kv && v->ne[0] == kv.head_dim_v);
    // Both writes enter the graph before anything that reads; besides, what reads takes their
    // results as its sources.
    return kept_[layer] = {write(graph, memory_.k(layer), k), write(graph, memory_.v(layer), v)};
}

// Writes `values` [head_dim, n_head_kv, n_tokens] into the pool; the result is the pool, written.
ggml_tensor* Attention::write(ggml_cgraph* graph, ggml_tensor* pool, ggml_tensor* values) const {
    const size_t head_bytes = static_cast<size_t>(values->ne[0]) * sizeof(float);
    if (values->nb[0] != sizeof(float) || values->nb[1] != head_bytes) {
        values = ggml_cont(ctx_, values);
    }
    ggml_tensor* rows =
        ggml_view_2d(ctx_, values, values->ne[0] * values->ne[1], values->ne[2], values->nb[2], 0);
    ggml_tensor* written = ggml_set_rows(ctx_, pool, rows, cells_);
    ggml_build_forward_expand(graph, written);
    return written;
}

void Attention::set_cells(const UbatchPlan& ubatch) const {
    write_input<int64_t>(cells_, ubatch.groups[group_].cells);
}

}  // namespace cellar
