// Included once for each SIMD target; see tile.cpp.
#if defined(CELLAR_ATTENTION_TILE_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CELLAR_ATTENTION_TILE_FEW_INL_H_
#undef CELLAR_ATTENTION_TILE_FEW_INL_H_
#else
#define CELLAR_ATTENTION_TILE_FEW_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <new>
#include <type_traits>

#include "attention/convert-inl.h"
#include "attention/tile.h"
#include "attention/tile_layout.h"
#include "attention/vector_math-inl.h"

// Few rows against a run of columns, as in decoding: memory is the limit, so K and V of plain types
// are read where they are, once. A head's dimensions lie in the lanes of the vectors.
HWY_BEFORE_NAMESPACE();
namespace cellar {
namespace HWY_NAMESPACE {

constexpr size_t kFewColumns = 64;  // at once
constexpr size_t kFewAtOnce = 3;    // rows
constexpr size_t kFewVectors = 4;   // of values, times kFewAtOnce: accumulators
constexpr size_t kFourKeys = kLanes < 4 ? kLanes : 4;

// Where the columns of a block stand, and how many bytes behind each row the one stands, most
// likely, that takes its place in the next block.
struct KeyRows {
    const uint8_t* row[kFewColumns];
    size_t next;
};

// Asks for a row of the next block while this one is computed: one at a time, since a burst would
// wait for the few misses that a core can have under way.
HWY_INLINE void prefetch_next(const KeyRows& rows, size_t k, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64)
        hwy::Prefetch(rows.row[k] + rows.next + at);
}

// s[r][k] = q[r]·key k, for `n` keys, and for some more that are not to be used.
template <size_t kRows, class From>
HWY_NOINLINE void few_scores(const KeyRows& keys, size_t n, const float* HWY_RESTRICT q, size_t dim,
                             float* HWY_RESTRICT s) {
    const F d;
    for (size_t k = 0; k < n; k += kLanes) {
        VecF fours[kRows][kFours];
        for (size_t f = 0; f < kFours; f++) {
            const uint8_t* at[4];
            for (size_t i = 0; i < 4; i++)
                at[i] = keys.row[std::min(k + f * kFourKeys + std::min(i, kFourKeys - 1), n - 1)];
            VecF acc[kRows][4];
            for (size_t r = 0; r < kRows; r++) {
                for (size_t i = 0; i < 4; i++)
                    acc[r][i] = hn::Zero(d);
            }
            for (size_t i = 0; i < kFourKeys; i++)
                prefetch_next(keys, std::min(k + f * kFourKeys + i, n - 1), dim * From::kBytes);
            for (size_t c = 0; c < dim; c += kLanes) {
                for (size_t i = 0; i < 4; i++) {
                    const VecF key = From::load(at[i] + c * From::kBytes);
                    for (size_t r = 0; r < kRows; r++)
                        acc[r][i] = hn::MulAdd(hn::Load(d, q + r * dim + c), key, acc[r][i]);
                }
            }
            for (size_t r = 0; r < kRows; r++)
                fours[r][f] = sum_four(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        }
        for (size_t r = 0; r < kRows; r++)
            hn::Store(join_fours(fours[r]), d, s + r * kFewColumns + k);
    }
}

// out[r] = scale[r] * out[r] + sum over k of w[r][k] * value k, for kNV vectors from `c` on.
template <size_t kRows, size_t kNV, class From>
HWY_INLINE void few_values_at(const KeyRows& values, size_t n, const float* HWY_RESTRICT w,
                              const float* scale, size_t c, size_t dim, float* HWY_RESTRICT out) {
    const F d;
    VecF acc[kRows][kNV];
    for (size_t r = 0; r < kRows; r++) {
        for (size_t j = 0; j < kNV; j++)
            acc[r][j] = hn::Mul(hn::Set(d, scale[r]), hn::Load(d, out + r * dim + c + j * kLanes));
    }
    for (size_t k = 0; k < n; k++) {
        const uint8_t* row = values.row[k] + c * From::kBytes;
        for (size_t at = 0; at < kNV * kLanes * From::kBytes; at += 64)
            hwy::Prefetch(row + values.next + at);
        VecF value[kNV];
        for (size_t j = 0; j < kNV; j++)
            value[j] = From::load(row + j * kLanes * From::kBytes);
        for (size_t r = 0; r < kRows; r++) {
            const VecF weight = hn::Set(d, w[r * kFewColumns + k]);
            for (size_t j = 0; j < kNV; j++)
                acc[r][j] = hn::MulAdd(weight, value[j], acc[r][j]);
        }
    }
    for (size_t r = 0; r < kRows; r++) {
        for (size_t j = 0; j < kNV; j++)
            hn::Store(acc[r][j], d, out + r * dim + c + j * kLanes);
    }
}

template <size_t kRows, class From>
HWY_NOINLINE void few_values(const KeyRows& values, size_t n, const float* w, const float* scale,
                             size_t dim, float* out) {
    size_t c = 0;
    for (; c + kFewVectors * kLanes <= dim; c += kFewVectors * kLanes)
        few_values_at<kRows, kFewVectors, From>(values, n, w, scale, c, dim, out);
    for (; c < dim; c += kLanes)
        few_values_at<kRows, 1, From>(values, n, w, scale, c, dim, out);
}

// What the heads of a task share: blocks of converted rows.
struct FewBlock {
    float* keys;    // [kFewColumns, head_dim_k in whole vectors]: where K is of no plain type
    float* values;  // [kFewColumns, head_dim_v in whole vectors]
    uint32_t rows[kFewColumns];  // of the pool
    uint32_t n;                  // columns
};

template <size_t kCount>
using Count = std::integral_constant<size_t, kCount>;

// The rows of one KV head.
class FewHead {
public:
    FewHead(const TileTask& task, uint32_t head, Arena& arena)
        : task_(task),
          head_(head),
          dim_k_(Arena::rounded(task.k.head_dim)),
          dim_v_(Arena::rounded(task.v.head_dim)),
          n_rows_(task.n_rows()) {
        q_ = arena.take<float>(n_rows_ * dim_k_);
        out_ = arena.take<float>(n_rows_ * dim_v_);
        scores_ = arena.take<float>(n_rows_ * kFewColumns);
        key_rows_.next = is_plain(task.k) ? kFewColumns * task.k.stride : 0;
        value_rows_.next = is_plain(task.v) ? kFewColumns * task.v.stride : 0;
        std::fill_n(q_, n_rows_ * dim_k_, 0.0f);
        std::fill_n(out_, n_rows_ * dim_v_, 0.0f);
        for (uint32_t row = 0; row < n_rows_; row++)
            begin_row(row);
    }

    static size_t scratch(size_t dim_k, size_t dim_v) {
        return Arena::floats<FewHead>(1) +
               kFewRows * (Arena::rounded(dim_k) + Arena::rounded(dim_v) + kFewColumns);
    }

    void fold(const FewBlock& block, uint32_t column) {
        n_ = block.n;
        find(task_.k, block, block.keys, dim_k_, key_rows_);
        make_scores();
        for (uint32_t row = 0; row < n_rows_; row++)
            weigh(row, column);
        find(task_.v, block, block.values, dim_v_, value_rows_);
        add_values();
    }

    void end(float* out) const {
        for (uint32_t row = 0; row < n_rows_; row++, out += partial_floats(task_.v.head_dim)) {
            std::copy_n(out_ + row * dim_v_, task_.v.head_dim, out);
            out[task_.v.head_dim] = sum_[row];
            out[task_.v.head_dim + 1] = max_[row];
        }
    }

    static bool is_padded(const TileSource& source) { return source.head_dim % 16 != 0; }

private:
    static bool is_plain(const TileSource& source) {
        return !is_padded(source) && (source.type == KvType::kF32 || source.type == KvType::kF16 ||
                                      source.type == KvType::kBf16);
    }

    void begin_row(uint32_t row) {
        const TileQuery& query = task_.queries[row / task_.n_heads];
        const float* q = query_values(task_, query, head_ * task_.n_heads + row % task_.n_heads);
        const float scale = task_.scale * kLog2E;
        for (size_t i = 0; i < task_.k.head_dim; i++)
            q_[row * dim_k_ + i] = q[i] * scale;
        max_[row] = kUnseen;
        sum_[row] = 0;
    }

    void find(const TileSource& source, const FewBlock& block, float* converted, size_t dim,
              KeyRows& rows) const {
        const uint8_t* data = source.data + head_ * source.head_bytes;
        const bool plain = is_plain(source);
        for (size_t i = 0; i < n_; i++) {
            const uint8_t* row = data + block.rows[i] * source.stride;
            rows.row[i] = row;
            if (plain) continue;
            for (size_t at = 0; at < source.head_bytes; at += 64)
                hwy::Prefetch(row + kFewColumns * source.stride + at);
            convert(source.type, row, converted + i * dim, source.head_dim);
            rows.row[i] = reinterpret_cast<const uint8_t*>(converted + i * dim);
        }
    }

    // Calls `call` with the reader of a source's rows.
    template <class Call>
    static HWY_INLINE void with_reader(const TileSource& source, const Call& call) {
        if (is_plain(source) && source.type == KvType::kF16) {
            call(FromF16());
        } else if (is_plain(source) && source.type == KvType::kBf16) {
            call(FromBf16());
        } else {
            call(FromF32());
        }
    }

    // Calls `call` with the reader of a source's rows, the first row, and how many it is to take.
    template <class Call>
    void in_parts(const TileSource& source, const Call& call) const {
        with_reader(source, [&](auto from) {
            size_t r = 0;
            for (; r + kFewAtOnce <= n_rows_; r += kFewAtOnce)
                call(from, r, Count<kFewAtOnce>());
            if (n_rows_ - r == 2) call(from, r, Count<2>());
            if (n_rows_ - r == 1) call(from, r, Count<1>());
        });
    }

    void make_scores() {
        in_parts(task_.k, [&](auto from, size_t r, auto n_rows) {
            few_scores<n_rows(), decltype(from)>(key_rows_, n_, q_ + r * dim_k_, dim_k_,
                                                 scores_ + r * kFewColumns);
        });
    }

    void add_values() {
        in_parts(task_.v, [&](auto from, size_t r, auto n_rows) {
            few_values<n_rows(), decltype(from)>(value_rows_, n_, scores_ + r * kFewColumns,
                                                 scale_ + r, dim_v_, out_ + r * dim_v_);
        });
    }

    // The row's scores become weights. Columns that it does not see weigh nothing.
    void weigh(uint32_t row, uint32_t column) {
        const F d;
        const I di;
        const TileQuery& query = task_.queries[row / task_.n_heads];
        float* scores = scores_ + row * kFewColumns;
        if (task_.is_adjusted()) adjust(row, column);
        // Bounds within the block, where they lie in it.
        const auto bound = [&](uint32_t at) {
            return hn::Set(di, static_cast<int32_t>(std::clamp(at, column, column + n_) - column));
        };
        const VecI begin = bound(query.begin), end = bound(query.end);
        VecF max = hn::Set(d, max_[row]);
        for (size_t k = 0; k < n_; k += kLanes) {
            const VecI at = hn::Iota(di, static_cast<int32_t>(k));
            const auto sees =
                hn::RebindMask(d, hn::And(hn::Not(hn::Lt(at, begin)), hn::Lt(at, end)));
            const VecF score = hn::IfThenElse(sees, hn::Load(d, scores + k), hn::Set(d, kUnseen));
            hn::Store(score, d, scores + k);
            max = hn::Max(max, score);
        }
        max = hn::MaxOfLanes(d, max);
        VecF sum = hn::Zero(d);
        for (size_t k = 0; k < n_; k += kLanes) {
            const VecF score = hn::Load(d, scores + k);
            const auto sees = hn::Gt(score, hn::Set(d, kUnseen));
            const VecF weight = hn::IfThenElseZero(sees, pow2(hn::Sub(score, max)));
            hn::Store(weight, d, scores + k);
            sum = hn::Add(sum, weight);
        }
        const float now = hn::GetLane(max);
        scale_[row] = hn::GetLane(pow2(hn::Set(d, max_[row] - now)));
        sum_[row] = sum_[row] * scale_[row] + hn::GetLane(hn::SumOfLanes(d, sum));
        max_[row] = now;
    }

    void adjust(uint32_t row, uint32_t column) {
        const TileQuery& query = task_.queries[row / task_.n_heads];
        const float cap = task_.softcap * kLog2E;
        for (size_t k = 0; k < n_; k++) {
            float& score = scores_[row * kFewColumns + k];
            if (task_.softcap > 0) score = cap * hn::GetLane(tanh_of(hn::Set(F(), score / cap)));
            if (task_.slopes == nullptr && task_.bias == nullptr) continue;
            const Pos distance = task_.positions[column + k] - query.pos;
            const size_t head = head_ * task_.n_heads + row % task_.n_heads;
            if (task_.slopes != nullptr)
                score += task_.slopes[head] * kLog2E * static_cast<float>(distance);
            if (task_.bias != nullptr) score += task_.bias[bias_index(task_, head, distance)];
        }
    }

    const TileTask& task_;
    const uint32_t head_;
    const size_t dim_k_, dim_v_;  // whole vectors; zero behind a head's own
    const uint32_t n_rows_;
    uint32_t n_ = 0;  // columns of the block
    float* q_;        // [n_rows_, dim_k_], scaled so that scores are binary logarithms
    float* out_;      // [n_rows_, dim_v_]
    float* scores_;   // [n_rows_, kFewColumns], then the weights
    KeyRows key_rows_, value_rows_;
    float max_[kFewRows], sum_[kFewRows], scale_[kFewRows];
};

HWY_INLINE size_t few_scratch(size_t n_kv_heads, size_t dim_k, size_t dim_v) {
    return kFewColumns * (Arena::rounded(dim_k) + Arena::rounded(dim_v)) +
           n_kv_heads * FewHead::scratch(dim_k, dim_v);
}

// A block of columns for all KV heads, then the next: so the pools are read from end to end.
HWY_INLINE void attend_few(const TileTask& task, float* scratch, float* out, size_t out_stride) {
    Arena arena{scratch};
    const size_t dim_k = Arena::rounded(task.k.head_dim), dim_v = Arena::rounded(task.v.head_dim);
    FewBlock block;
    block.keys = arena.take<float>(kFewColumns * dim_k);
    block.values = arena.take<float>(kFewColumns * dim_v);
    if (FewHead::is_padded(task.k)) std::fill_n(block.keys, kFewColumns * dim_k, 0.0f);
    if (FewHead::is_padded(task.v)) std::fill_n(block.values, kFewColumns * dim_v, 0.0f);
    auto* heads = arena.take<FewHead>(task.n_kv_heads);
    for (uint32_t head = 0; head < task.n_kv_heads; head++)
        new (heads + head) FewHead(task, head, arena);
    const auto [begin, end] = seen_columns(task.queries, task.first_column, task.end_column);
    RunWalker walker(task.runs, begin);
    for (uint32_t column = begin; column < end; column += kFewColumns) {
        block.n = std::min<uint32_t>(kFewColumns, end - column);
        std::generate_n(block.rows, block.n, [&] { return walker.next(); });
        for (uint32_t head = 0; head < task.n_kv_heads; head++)
            heads[head].fold(block, column);
    }
    for (uint32_t head = 0; head < task.n_kv_heads; head++)
        heads[head].end(out + head * out_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar
HWY_AFTER_NAMESPACE();

#endif
