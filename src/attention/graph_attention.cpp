#include "attention/graph_attention.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <vector>

#include "attention/input_writer.h"
#include "attention/rope.h"
#include "memory/ggml_compat.h"

namespace cellar {
namespace {

struct AsF16 {
    using Type = ggml_fp16_t;
    static Type of(float x) { return ggml_fp32_to_fp16(x); }
};

struct AsF32 {
    using Type = float;
    static Type of(float x) { return x; }
};

// Calls put(column, distance) for each column of the stream that a query sees: how far behind the
// query its key stands, negative before it.
template <class Put>
void each_seen(const Schedule& schedule, const Schedule::Query& query, const Put& put) {
    const Schedule::View& view = schedule.views[query.view];
    const Pos* positions = schedule.positions.data() + size_t{view.stream} * schedule.length;
    uint32_t before = 0;  // columns of the view's pieces so far
    for (uint32_t i = view.first_piece; before < query.end; i++) {
        const Schedule::Piece& piece = schedule.pieces[i];
        const uint32_t first = piece.column + std::max(before, query.begin) - before;
        const uint32_t end = piece.column + std::min(piece.count, query.end - before);
        for (uint32_t c = first; c < end; c++)
            put(c, positions[c] + piece.delta - query.pos);
        before += piece.count;
    }
}

// One query's row of the mask: [length].
template <class As>
void fill_mask_row(typename As::Type* row, const Schedule& schedule, const Schedule::Query& query,
                   bool distances) {
    std::fill_n(row, schedule.length, As::of(-std::numeric_limits<float>::infinity()));
    const auto zero = As::of(0.0f);
    each_seen(schedule, query, [&](uint32_t column, Pos distance) {
        row[column] = distances ? As::of(static_cast<float>(distance)) : zero;
    });
}

template <class As>
void fill_mask(ggml_tensor* mask, const Schedule& schedule, bool distances) {
    InputWriter<typename As::Type> writer(mask);
    for (size_t i = 0; i < schedule.n_tokens; i++) {
        fill_mask_row<As>(writer.data() + i * schedule.length, schedule, schedule.queries[i],
                          distances);
    }
}

}  // namespace

GraphAttention::GraphAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                               const AttentionShape& shape, bool flash)
    : Attention(ctx, memory, group, shape.n_tokens),
      shape_(shape),
      flash_(flash),
      gathered_(memory.config().layers.size()) {
    const int64_t n_tokens = shape.n_tokens;
    const int64_t n_rows = int64_t{shape.length} * shape.n_streams;
    rows_ = input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_rows), "rows");
    if (!shape.in_order) {
        order_ = input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens), "order");
        place_ = input(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens), "place");
    }
}

ggml_tensor* GraphAttention::attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q,
                                    ggml_tensor* k, ggml_tensor* v, const AttendParams& params) {
    const Kept kept = keep(graph, layer, k, v);
    const LayerKv& kv = memory_.config().layers[layer];
    Gathered& gathered = gathered_[kv.shares.value_or(layer)];
    if (gathered.keys == nullptr) {
        gathered = {gather(kept.k, kv.n_head_kv, params.rope),
                    gather(kept.v, kv.n_head_kv, nullptr)};
    }
    const auto [keys, values] = gathered;

    const int64_t head_dim = q->ne[0], n_head = q->ne[1], n_tokens = q->ne[2];
    const int64_t n_streams = shape_.n_streams;
    if (!ggml_is_contiguous(q)) q = ggml_cont(ctx_, q);
    q = reorder(ggml_reshape_2d(ctx_, q, head_dim * n_head, n_tokens), order_);
    q = ggml_reshape_4d(ctx_, q, head_dim, n_head, n_tokens / n_streams, n_streams);
    q = ggml_permute(ctx_, q, 0, 2, 1, 3);  // [head_dim_k, n_tokens / n_streams, n_head, n_streams]
    return reorder(weigh(q, keys, values, biased(mask_for(params), params), params), place_);
}

// The streams' rows as f32, turned where their positions moved and `rope` is not null:
// [head_dim, length, n_head_kv, n_streams].
ggml_tensor* GraphAttention::gather(ggml_tensor* pool, int64_t n_head_kv, const Rope* rope) {
    ggml_tensor* rows = ggml_get_rows(ctx_, pool, rows_);
    if (shape_.n_turned > 0 && rope != nullptr) rows = turn(rows, n_head_kv, *rope);
    const int64_t head_dim = rows->ne[0] / n_head_kv;
    const size_t head_bytes = static_cast<size_t>(head_dim) * sizeof(float);
    return ggml_view_4d(ctx_, rows, head_dim, shape_.length, n_head_kv, shape_.n_streams,
                        rows->nb[1], head_bytes, rows->nb[1] * shape_.length, 0);
}

// Gathered keys [head_dim * n_head_kv, n] at the positions where they are seen. Zero rows stay so.
ggml_tensor* GraphAttention::turn(ggml_tensor* rows, int64_t n_head_kv, const Rope& rope) {
    if (turns_ == nullptr)
        turns_ = input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, rows->ne[1]), "turns");
    return turn_rows(ctx_, rows, n_head_kv, turns_, rope);
}

// The rows of items, in another order; as they are with `by` null.
ggml_tensor* GraphAttention::reorder(ggml_tensor* rows, ggml_tensor* by) const {
    return by == nullptr ? rows : ggml_get_rows(ctx_, rows, by);
}

ggml_tensor* GraphAttention::mask_for(const AttendParams& params) {
    const bool distances = params.max_alibi_bias > 0.0f;
    ggml_tensor*& mask = distances ? distances_ : mask_;
    if (mask == nullptr) {
        mask = ggml_new_tensor_4d(ctx_, flash_ ? GGML_TYPE_F16 : GGML_TYPE_F32, shape_.length,
                                  shape_.n_tokens / shape_.n_streams, 1, shape_.n_streams);
        input(mask, distances ? "distances" : "mask");
    }
    return mask;
}

// The mask with the bias that `params` asks for: [length, queries, n_head, n_streams].
ggml_tensor* GraphAttention::biased(ggml_tensor* mask, const AttendParams& params) {
    if (params.bias == nullptr) return mask;
    if (buckets_ == nullptr) {
        buckets_ = input(ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, ggml_nelements(mask)), "buckets");
        bucket_kind_ = params.buckets;
    }
    ggml_tensor* bias = ggml_get_rows(ctx_, params.bias, buckets_);  // [n_head, elements]
    bias = ggml_reshape_4d(ctx_, bias, bias->ne[0], mask->ne[0], mask->ne[1], mask->ne[3]);
    bias = ggml_cont(ctx_, ggml_permute(ctx_, bias, 2, 0, 1, 3));
    if (mask->type == GGML_TYPE_F32) return ggml_add(ctx_, bias, mask);
    return ggml_cast(ctx_, ggml_add(ctx_, bias, ggml_cast(ctx_, mask, GGML_TYPE_F32)), mask->type);
}

void GraphAttention::set_buckets(const Schedule& schedule) const {
    InputWriter<int32_t> writer(buckets_);
    std::fill_n(writer.data(), ggml_nelements(buckets_), 0);
    for (size_t i = 0; i < schedule.n_tokens; i++) {
        int32_t* row = writer.data() + i * schedule.length;
        each_seen(schedule, schedule.queries[i], [&](uint32_t column, Pos distance) {
            row[column] = static_cast<int32_t>(relative_bucket(bucket_kind_, 0, distance));
        });
    }
}

// The weighted sums of values: [n_head * head_dim_v, n_tokens], stream by stream.
ggml_tensor* GraphAttention::weigh(ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                                   ggml_tensor* mask, const AttendParams& params) const {
    const int64_t width = v->ne[0] * q->ne[2];
    if (flash_) {
        ggml_tensor* sums = ggml_flash_attn_ext(ctx_, q, k, v, mask, params.scale,
                                                params.max_alibi_bias, params.softcap);
        if (params.sinks != nullptr) ggml_flash_attn_ext_add_sinks(sums, params.sinks);
        sum_in_f32(sums);  // [head_dim_v, n_head, n_tokens / n_streams, n_streams]
        return ggml_reshape_2d(ctx_, sums, width, shape_.n_tokens);
    }
    ggml_tensor* scores = ggml_mul_mat(ctx_, k, q);  // [length, queries, n_head, n_streams]
    sum_in_f32(scores);
    float scale = params.scale;
    if (params.softcap != 0.0f) {
        scores = ggml_tanh(ctx_, ggml_scale(ctx_, scores, scale / params.softcap));
        scale = params.softcap;
    }
    scores = ggml_soft_max_ext(ctx_, scores, mask, scale, params.max_alibi_bias);
    if (params.sinks != nullptr) ggml_soft_max_add_sinks(scores, params.sinks);
    ggml_tensor* columns = ggml_cont(ctx_, ggml_transpose(ctx_, v));  // [length, head_dim_v, ...]
    ggml_tensor* sums = ggml_mul_mat(ctx_, columns, scores);  // [head_dim_v, queries, n_head, ...]
    return ggml_cont_2d(ctx_, ggml_permute(ctx_, sums, 0, 2, 1, 3), width, shape_.n_tokens);
}

void GraphAttention::set_inputs(const AttentionPlan& plan, const UbatchPlan& ubatch) {
    assert(shape_of(plan) == shape_);
    const auto& schedule = std::get<Schedule>(plan);
    set_cells(ubatch);
    write_input<int32_t>(rows_, schedule.rows);
    if (turns_ != nullptr) write_input<int32_t>(turns_, schedule.turns);
    if (order_ != nullptr) {
        write_input<int32_t>(order_, schedule.order);
        std::vector<uint32_t> place(schedule.order.size());
        for (uint32_t i = 0; i < place.size(); i++)
            place[schedule.order[i]] = i;
        write_input<int32_t>(place_, place);
    }
    if (buckets_ != nullptr) set_buckets(schedule);
    if (mask_ != nullptr) set_mask(mask_, schedule);
    if (distances_ != nullptr) set_mask(distances_, schedule);
}

void GraphAttention::set_mask(ggml_tensor* mask, const Schedule& schedule) const {
    const bool distances = mask == distances_;
    if (mask->type == GGML_TYPE_F16) {
        fill_mask<AsF16>(mask, schedule, distances);
    } else {
        fill_mask<AsF32>(mask, schedule, distances);
    }
}

}  // namespace cellar
