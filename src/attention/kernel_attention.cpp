#include "attention/kernel_attention.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "attention/alibi.h"
#include "attention/input_writer.h"
#include "attention/rope.h"
#include "attention/tile.h"
#include "attention/tile_layout.h"
#include "attention/workspace.h"

namespace cellar {
namespace {

// Keys or values of a pool [n_head_kv * head_dim, n_cells + 1].
TileSource source_of(const ggml_tensor* pool, KvType type, uint32_t head_dim) {
    return {static_cast<const uint8_t*>(pool->data), pool->nb[1],
            ggml_row_size(pool->type, head_dim), type, head_dim};
}

// A table of a model's, f32, which may be on another device.
std::vector<float> values_of(const ggml_tensor* table) {
    std::vector<float> values(static_cast<size_t>(ggml_nelements(table)));
    if (table->buffer) {
        ggml_backend_tensor_get(table, values.data(), 0, ggml_nbytes(table));
    } else {
        std::memcpy(values.data(), table->data, ggml_nbytes(table));
    }
    return values;
}

// One segment of all columns, every one of which all queries see.
Cascade whole_pool(uint32_t n_columns, uint32_t n_queries) {
    Cascade cascade;
    cascade.n_tokens = n_queries;
    cascade.n_columns = n_columns;
    cascade.segments.push_back({0, 1, 0, n_queries, 0, n_columns});
    cascade.runs.push_back({0, n_columns, 0});
    cascade.first_part.push_back(0);
    for (uint32_t item = 0; item < n_queries; item++) {
        cascade.queries.push_back({item, 0, n_columns, 0});
        cascade.parts.push_back({0, item});
        cascade.first_part.push_back(item + 1);
    }
    return cascade;
}

}  // namespace

KernelAttention::KernelAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                                 const AttentionShape& shape, AttentionWorkspace& workspace)
    : Attention(ctx, memory, group, shape.n_tokens), shape_(shape), workspace_(workspace) {
    if (shape.n_turned == 0) return;
    turned_items_ = input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, shape.n_turned), "turned_items");
}

ggml_tensor* KernelAttention::attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q,
                                     ggml_tensor* k, ggml_tensor* v, const AttendParams& params) {
    const Kept kept = keep(graph, layer, k, v);
    const LayerKv& kv = memory_.config().layers[layer];
    const auto n_head = static_cast<uint32_t>(q->ne[1]);
    const int64_t n_tokens = q->ne[2], width = kv.head_dim_v * q->ne[1];
    Layer& made = layers_.emplace_back();
    made.owner = this;
    made.work = work_of({n_head, kv.n_head_kv, kv.head_dim_k, kv.head_dim_v});
    made.scale = params.scale;
    made.softcap = params.softcap;
    set_biases(made, n_head, params);
    placed_ = placed_ || !made.slopes.empty() || !made.bias.empty();
    ggml_tensor* sources[] = {with_turned(q, params.rope), kept.k, kept.v};
    // The sums stand in the workspace: this result only says that they are there.
    ggml_tensor* summed = ggml_custom_4d(ctx_, GGML_TYPE_F32, 1, 1, 1, 1, sources, 3, sum_tiles,
                                         GGML_N_TASKS_MAX, &made);
    return ggml_custom_4d(ctx_, GGML_TYPE_F32, width, n_tokens, 1, 1, &summed, 1, merge_tiles,
                          GGML_N_TASKS_MAX, &made);
}

void KernelAttention::set_biases(Layer& layer, uint32_t n_head, const AttendParams& params) {
    for (uint32_t head = 0; params.max_alibi_bias > 0 && head < n_head; head++)
        layer.slopes.push_back(
            static_cast<float>(alibi_slope(head, n_head, params.max_alibi_bias)));
    if (params.sinks != nullptr) {
        for (const float sink : values_of(params.sinks))
            layer.sinks.push_back(sink * kLog2E);
    }
    if (params.bias == nullptr) return;
    // From its greatest distance on, everything falls into one bucket.
    layer.reach = static_cast<int32_t>(params.buckets.max_distance);
    const std::vector<float> table = values_of(params.bias);
    for (uint32_t head = 0; head < n_head; head++) {
        for (int32_t distance = -layer.reach; distance <= layer.reach; distance++) {
            const uint32_t bucket = relative_bucket(params.buckets, 0, distance);
            layer.bias.push_back(table[size_t{bucket} * n_head + head] * kLog2E);
        }
    }
}

size_t KernelAttention::work_of(const HeadShape& shape) {
    const auto found = std::find_if(work_.begin(), work_.end(),
                                    [&](const TileWork& work) { return work.shape() == shape; });
    if (found != work_.end()) return static_cast<size_t>(found - work_.begin());
    work_.emplace_back(shape);
    return work_.size() - 1;
}

// q [head_dim_k, n_head, n_tokens] and, behind it, the queries of `turned_items_`, turned back:
// [head_dim_k * n_head, n_tokens + n_turned].
ggml_tensor* KernelAttention::with_turned(ggml_tensor* q, const Rope* rope) {
    if (!ggml_is_contiguous(q)) q = ggml_cont(ctx_, q);
    const int64_t n_head = q->ne[1];
    q = ggml_reshape_2d(ctx_, q, q->ne[0] * n_head, q->ne[2]);
    if (turned_items_ == nullptr) return q;
    ggml_tensor* turned = ggml_get_rows(ctx_, q, turned_items_);
    if (rope != nullptr) {
        if (turned_deltas_ == nullptr) {
            turned_deltas_ =
                input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, shape_.n_turned), "turned_deltas");
        }
        turned = turn_rows(ctx_, turned, n_head, turned_deltas_, *rope);
    }
    return ggml_concat(ctx_, q, turned, 1);
}

void KernelAttention::set_inputs(const AttentionPlan& plan, const UbatchPlan& ubatch) {
    assert(shape_of(plan) == shape_);
    cascade_ = &std::get<Cascade>(plan);
    set_cells(ubatch);
    if (turned_items_ != nullptr) set_turned();
    if (placed_) set_positions();
    divide(*cascade_);
}

// As one sequence that fills the pool, and with fewer queries, which are split into more parts.
// Many sequences divide the same cells among themselves.
void KernelAttention::reserve() {
    const PagePool& pool = memory_.cells().pool(group_);
    const uint32_t n_columns = pool.max_pages() * pool.page_size();
    for (const uint32_t most : {1u, 64u, shape_.n_tokens}) {
        const uint32_t n = std::min(most, shape_.n_tokens);
        divide(whole_pool(n_columns, n));
    }
}

void KernelAttention::divide(const Cascade& cascade) {
    for (TileWork& work : work_) {
        work.divide(cascade);
        const HeadShape& shape = work.shape();
        const size_t tile = tile_scratch_floats(shape.n_head_kv, work.max_rows(), shape.head_dim_k,
                                                shape.head_dim_v);
        const size_t list = work.max_partials() * sizeof(float*) / sizeof(float);
        workspace_.reserve(work.n_floats(), std::max(tile, list));
    }
}

// What is turned beyond the cascade's queries, to fill the shape, is read by nobody.
void KernelAttention::set_turned() const {
    const auto write = [&](ggml_tensor* tensor, const auto& value) {
        InputWriter<int32_t> writer(tensor);
        std::fill_n(writer.data(), shape_.n_turned, 0);
        std::transform(cascade_->turned.begin(), cascade_->turned.end(), writer.data(), value);
    };
    write(turned_items_,
          [](const Cascade::Turned& turned) { return static_cast<int32_t>(turned.item); });
    if (turned_deltas_ != nullptr)
        write(turned_deltas_, [](const Cascade::Turned& turned) { return -turned.delta; });
}

void KernelAttention::set_positions() {
    const PagePool& pool = memory_.cells().pool(group_);
    positions_.clear();
    for (const RowRun& run : cascade_->runs) {
        for (uint32_t row = run.row; row < run.end(); row++)
            positions_.push_back(pool.pos(PageId{row / pool.page_size()}, row % pool.page_size()));
    }
}

void KernelAttention::sum_tiles(ggml_tensor* out, int thread, int n_threads, void* data) {
    const auto& layer = *static_cast<const Layer*>(data);
    const KernelAttention& self = *layer.owner;
    const Cascade& cascade = *self.cascade_;
    const TileWork& work = self.work_[layer.work];
    const HeadShape& shape = work.shape();
    const MemoryConfig& config = self.memory_.config();
    const ggml_tensor* q = out->src[0];

    TileTask task;
    task.n_heads = shape.n_shared();
    task.q_stride = q->nb[1] / sizeof(float);
    task.scale = layer.scale;
    task.softcap = layer.softcap;
    const TileSource keys = source_of(out->src[1], config.type_k, shape.head_dim_k);
    const TileSource values = source_of(out->src[2], config.type_v, shape.head_dim_v);
    const auto units = work.share(static_cast<size_t>(thread), static_cast<size_t>(n_threads));
    for (const TileWork::Unit& unit : units) {
        const Cascade::Segment& segment = cascade.segments[unit.segment];
        const size_t head = size_t{unit.kv_head} * task.n_heads;
        task.k = keys;
        task.k.data += unit.kv_head * keys.head_bytes;
        task.v = values;
        task.v.data += unit.kv_head * values.head_bytes;
        task.runs = cascade.runs_of(segment);
        task.positions = self.placed_ ? self.positions_.data() + segment.first_column : nullptr;
        task.first_column = unit.first_column;
        task.end_column = unit.end_column;
        task.queries = cascade.queries_of(segment).subspan(unit.first_query, unit.n_queries);
        task.n_kv_heads = unit.n_kv_heads;
        task.q = static_cast<const float*>(q->data) + head * shape.head_dim_k;
        task.slopes = layer.slopes.empty() ? nullptr : layer.slopes.data() + head;
        task.reach = layer.reach;
        const auto width = size_t{2} * static_cast<size_t>(layer.reach) + 1;
        task.bias = layer.bias.empty() ? nullptr : layer.bias.data() + head * width;
        attend_tile(task, self.workspace_.scratch(static_cast<size_t>(thread)),
                    self.workspace_.sums() + unit.partial, work.kv_head_stride(unit.segment));
    }
}

void KernelAttention::merge_tiles(ggml_tensor* out, int thread, int n_threads, void* data) {
    const auto& layer = *static_cast<const Layer*>(data);
    const KernelAttention& self = *layer.owner;
    const TileWork& work = self.work_[layer.work];
    const HeadShape& shape = work.shape();
    auto** partials =
        reinterpret_cast<const float**>(self.workspace_.scratch(static_cast<size_t>(thread)));
    const size_t n = size_t{self.cascade_->n_tokens} * shape.n_head;
    const auto bound = [&](int i) {
        return n * static_cast<size_t>(i) / static_cast<size_t>(n_threads);
    };
    for (size_t i = bound(thread); i < bound(thread + 1); i++) {
        const auto item = static_cast<uint32_t>(i / shape.n_head);
        const auto head = static_cast<uint32_t>(i % shape.n_head);
        const size_t n_partials =
            work.list_partials(*self.cascade_, item, head, self.workspace_.sums(), partials);
        merge_partials({partials, n_partials}, shape.head_dim_v,
                       layer.sinks.empty() ? nullptr : &layer.sinks[head],
                       static_cast<float*>(out->data) + i * shape.head_dim_v);
    }
}

}  // namespace cellar
