// Included once for each SIMD target; see tile.cpp.
#if defined(CELLAR_ATTENTION_TILE_MANY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CELLAR_ATTENTION_TILE_MANY_INL_H_
#undef CELLAR_ATTENTION_TILE_MANY_INL_H_
#else
#define CELLAR_ATTENTION_TILE_MANY_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "attention/convert-inl.h"
#include "attention/tile.h"
#include "attention/tile_layout.h"
#include "attention/vector_math-inl.h"

// Many rows against a run of columns. The rows lie in the lanes of the vectors, so that maxima,
// sums and weights need no work across lanes, and neither K nor V is transposed: a block of columns
// becomes f32 once, and each of its numbers is broadcast to all rows of a tile.
HWY_BEFORE_NAMESPACE();
namespace cellar {
namespace HWY_NAMESPACE {

// A product holds kTall x kWide accumulators, kWide vectors of rows and a broadcast in registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kWide = 3;  // 32 registers
constexpr size_t kTall = 8;
#else
constexpr size_t kWide = 2;  // 16 registers
constexpr size_t kTall = 4;
#endif
constexpr size_t kTileRows = kWide * kLanes;
constexpr size_t kBlockColumns = 64;  // converted at once

// One tile of rows; every array lies in the scratch, a row in a lane.
struct RowTile {
    float* q;        // [head_dim_k, kTileRows], scaled so that scores are binary logarithms
    float* out;      // [head_dim_v, kTileRows]
    float* max;      // [kTileRows]
    float* sum;      // [kTileRows]
    int32_t* begin;  // [kTileRows]; rows beyond the last see nothing
    int32_t* end;
    // [kTileRows] for biases: position, ALiBi's slope, and where the bias of distance 0 stands.
    int32_t* pos;
    float* slope;
    int32_t* bias;
    size_t n_rows;
    // Columns that some row sees, and those that all see.
    uint32_t some_begin, some_end, all_begin, all_end;
};

// c[i][r] = start + sum over k of a(i, k) * b[k][r], for kM i's and kNV vectors of r's.
//   kFirstIsK: a(i, k) stands at a[i * stride + k], otherwise at a[k * stride + i].
//   start: 0, or with `scale` c[i][r] * scale[r].
template <size_t kM, size_t kNV, bool kFirstIsK>
HWY_INLINE void product(const float* HWY_RESTRICT a, size_t stride, size_t n_k,
                        const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                        const float* HWY_RESTRICT scale) {
    const F d;
    VecF acc[kM][kNV];
    for (size_t i = 0; i < kM; i++) {
        for (size_t j = 0; j < kNV; j++) {
            acc[i][j] = kFirstIsK ? hn::Zero(d)
                                  : hn::Mul(hn::Load(d, c + i * kTileRows + j * kLanes),
                                            hn::Load(d, scale + j * kLanes));
        }
    }
    for (size_t k = 0; k < n_k; k++) {
        VecF rows[kNV];
        for (size_t j = 0; j < kNV; j++)
            rows[j] = hn::Load(d, b + k * kTileRows + j * kLanes);
        for (size_t i = 0; i < kM; i++) {
            const VecF one = hn::Set(d, kFirstIsK ? a[i * stride + k] : a[k * stride + i]);
            for (size_t j = 0; j < kNV; j++)
                acc[i][j] = hn::MulAdd(one, rows[j], acc[i][j]);
        }
    }
    for (size_t i = 0; i < kM; i++) {
        for (size_t j = 0; j < kNV; j++)
            hn::Store(acc[i][j], d, c + i * kTileRows + j * kLanes);
    }
}

// The same for any number of i's.
template <size_t kNV, bool kFirstIsK>
HWY_NOINLINE void products(const float* a, size_t stride, size_t n_i, size_t n_k, const float* b,
                           float* c, const float* scale) {
    const size_t step = kFirstIsK ? stride : 1;
    size_t i = 0;
    for (; i + kTall <= n_i; i += kTall)
        product<kTall, kNV, kFirstIsK>(a + i * step, stride, n_k, b, c + i * kTileRows, scale);
    for (; i < n_i; i++)
        product<1, kNV, kFirstIsK>(a + i * step, stride, n_k, b, c + i * kTileRows, scale);
}

// What is added to a vector of rows for their distances from a key.
HWY_INLINE VecF bias_of(const TileTask& task, const RowTile& tile, size_t j, VecI distance) {
    const I d;
    const VecI reach = hn::Set(d, task.reach);
    const VecI near = hn::Min(hn::Max(distance, hn::Neg(reach)), reach);
    return hn::GatherIndex(F(), task.bias, hn::Add(near, hn::Load(d, tile.bias + j * kLanes)));
}

// Scores that are no plain product: capped, and with a bias that grows with the distance.
template <size_t kNV>
HWY_NOINLINE void adjust_scores(const TileTask& task, const RowTile& tile, uint32_t column,
                                size_t n, float* scores) {
    const F d;
    const VecF cap = hn::Set(d, task.softcap * kLog2E);
    const VecF per_cap = hn::Set(d, task.softcap > 0 ? 1 / (task.softcap * kLog2E) : 0);
    const bool placed = task.slopes != nullptr || task.bias != nullptr;
    for (size_t k = 0; k < n; k++) {
        const Pos pos = placed ? task.positions[column + k] : 0;
        for (size_t j = 0; j < kNV; j++) {
            float* at = scores + k * kTileRows + j * kLanes;
            VecF score = hn::Load(d, at);
            if (task.softcap > 0) score = hn::Mul(cap, tanh_of(hn::Mul(score, per_cap)));
            if (placed) {
                const I di;
                const VecI distance =
                    hn::Sub(hn::Set(di, pos), hn::Load(di, tile.pos + j * kLanes));
                score = hn::MulAdd(hn::Load(d, tile.slope + j * kLanes), hn::ConvertTo(d, distance),
                                   score);
                if (task.bias != nullptr) score = hn::Add(score, bias_of(task, tile, j, distance));
            }
            hn::Store(score, d, at);
        }
    }
}

// Which of a vector of rows see a column.
HWY_INLINE auto sees_of(const RowTile& tile, size_t j, uint32_t column) {
    const I d;
    const auto at = hn::Set(d, static_cast<int32_t>(column));
    const auto begun = hn::Not(hn::Lt(at, hn::Load(d, tile.begin + j * kLanes)));
    return hn::RebindMask(F(), hn::And(begun, hn::Lt(at, hn::Load(d, tile.end + j * kLanes))));
}

// Scores become weights; `scale` receives what earlier sums are multiplied by.
template <size_t kNV, bool kMasked>
HWY_NOINLINE void weigh(const RowTile& tile, uint32_t column, size_t n, float* scores,
                        float* scale) {
    const F d;
    VecF before[kNV], max[kNV], sum[kNV];
    for (size_t j = 0; j < kNV; j++) {
        before[j] = max[j] = hn::Load(d, tile.max + j * kLanes);
        sum[j] = hn::Zero(d);
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j < kNV; j++) {
            VecF score = hn::Load(d, scores + k * kTileRows + j * kLanes);
            if constexpr (kMasked) {
                const auto sees = sees_of(tile, j, column + static_cast<uint32_t>(k));
                score = hn::IfThenElse(sees, score, hn::Set(d, kUnseen));
            }
            max[j] = hn::Max(max[j], score);
        }
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j < kNV; j++) {
            float* at = scores + k * kTileRows + j * kLanes;
            VecF weight = pow2(hn::Sub(hn::Load(d, at), max[j]));
            if constexpr (kMasked) {
                const auto sees = sees_of(tile, j, column + static_cast<uint32_t>(k));
                weight = hn::IfThenElseZero(sees, weight);
            }
            sum[j] = hn::Add(sum[j], weight);
            hn::Store(weight, d, at);
        }
    }
    for (size_t j = 0; j < kNV; j++) {
        const VecF factor = pow2(hn::Sub(before[j], max[j]));
        const VecF old = hn::Load(d, tile.sum + j * kLanes);
        hn::Store(max[j], d, tile.max + j * kLanes);
        hn::Store(hn::MulAdd(old, factor, sum[j]), d, tile.sum + j * kLanes);
        hn::Store(factor, d, scale + j * kLanes);
    }
}

// The columns [column, column + n) of a converted block, whose K and V begin at `keys` and
// `values`.
template <size_t kNV>
HWY_INLINE void fold(const TileTask& task, const RowTile& tile, uint32_t column, size_t n,
                     const float* keys, const float* values, float* scores) {
    HWY_ALIGN float scale[kTileRows];
    const size_t dim_k = task.k.head_dim, dim_v = task.v.head_dim;
    products<kNV, true>(keys, dim_k, n, dim_k, tile.q, scores, nullptr);
    if (task.is_adjusted()) adjust_scores<kNV>(task, tile, column, n, scores);
    if (column >= tile.all_begin && column + n <= tile.all_end) {
        weigh<kNV, false>(tile, column, n, scores, scale);
    } else {
        weigh<kNV, true>(tile, column, n, scores, scale);
    }
    products<kNV, false>(values, dim_v, dim_v, n, scores, tile.out, scale);
}

class ManyRows {
public:
    ManyRows(const TileTask& task, uint32_t head, float* scratch)
        : task_(task), head_(head), arena_{scratch} {
        const size_t dim_k = task.k.head_dim, dim_v = task.v.head_dim;
        keys_ = arena_.take<float>(kBlockColumns * dim_k);
        values_ = arena_.take<float>(kBlockColumns * dim_v);
        scores_ = arena_.take<float>(kBlockColumns * kTileRows);
        n_tiles_ = (task.n_rows() + kTileRows - 1) / kTileRows;
        tiles_ = arena_.take<RowTile>(n_tiles_);
        for (size_t t = 0; t < n_tiles_; t++)
            begin_tile(tiles_[t], t * kTileRows);
    }

    void run(float* out) {
        const auto [begin, end] = seen_columns(task_.queries, task_.first_column, task_.end_column);
        RunWalker keys(task_.runs, begin), values(task_.runs, begin);
        for (uint32_t column = begin; column < end; column += kBlockColumns) {
            const auto n = std::min<uint32_t>(kBlockColumns, end - column);
            load(task_.k, keys, n, keys_);
            load(task_.v, values, n, values_);
            for (size_t t = 0; t < n_tiles_; t++)
                fold_block(tiles_[t], column, column + n);
        }
        for (size_t t = 0; t < n_tiles_; t++)
            end_tile(tiles_[t], out + t * kTileRows * partial_floats(task_.v.head_dim));
    }

private:
    void begin_tile(RowTile& tile, size_t first_row) {
        const size_t dim_k = task_.k.head_dim, dim_v = task_.v.head_dim;
        tile.q = arena_.take<float>(dim_k * kTileRows);
        tile.out = arena_.take<float>(dim_v * kTileRows);
        tile.max = arena_.take<float>(kTileRows);
        tile.sum = arena_.take<float>(kTileRows);
        tile.begin = arena_.take<int32_t>(kTileRows);
        tile.end = arena_.take<int32_t>(kTileRows);
        tile.pos = arena_.take<int32_t>(kTileRows);
        tile.slope = arena_.take<float>(kTileRows);
        tile.bias = arena_.take<int32_t>(kTileRows);
        tile.n_rows = std::min<size_t>(kTileRows, task_.n_rows() - first_row);
        tile.some_begin = task_.end_column;
        tile.some_end = task_.first_column;
        tile.all_begin = 0;
        tile.all_end = std::numeric_limits<uint32_t>::max();
        std::fill_n(tile.q, dim_k * kTileRows, 0.0f);
        std::fill_n(tile.out, dim_v * kTileRows, 0.0f);
        std::fill_n(tile.max, kTileRows, kUnseen);
        std::fill_n(tile.sum, kTileRows, 0.0f);
        std::fill_n(tile.pos, kTileRows, 0);
        std::fill_n(tile.slope, kTileRows, 0.0f);
        std::fill_n(tile.bias, kTileRows, task_.reach);
        std::fill_n(tile.begin, kTileRows, 0);
        std::fill_n(tile.end, kTileRows, 0);
        for (size_t r = 0; r < tile.n_rows; r++)
            begin_row(tile, r, static_cast<uint32_t>(first_row + r));
    }

    void begin_row(RowTile& tile, size_t r, uint32_t row) {
        const TileQuery& query = task_.queries[row / task_.n_heads];
        const uint32_t head = head_ * task_.n_heads + row % task_.n_heads;
        const float* q = query_values(task_, query, head);
        const float scale = task_.scale * kLog2E;
        for (size_t i = 0; i < task_.k.head_dim; i++)
            tile.q[i * kTileRows + r] = q[i] * scale;
        tile.begin[r] = static_cast<int32_t>(query.begin);
        tile.end[r] = static_cast<int32_t>(query.end);
        tile.pos[r] = query.pos;
        if (task_.slopes != nullptr) tile.slope[r] = task_.slopes[head] * kLog2E;
        tile.bias[r] = static_cast<int32_t>(bias_index(task_, head, 0));
        const uint32_t begin = std::max(query.begin, task_.first_column);
        const uint32_t end = std::min(query.end, task_.end_column);
        if (begin < end) {
            tile.some_begin = std::min(tile.some_begin, begin);
            tile.some_end = std::max(tile.some_end, end);
        }
        tile.all_begin = std::max(tile.all_begin, query.begin);
        tile.all_end = std::min(tile.all_end, query.end);
    }

    void load(const TileSource& source, RunWalker& walker, size_t n, float* to) {
        const uint8_t* data = source.data + head_ * source.head_bytes;
        for (size_t i = 0; i < n; i++, to += source.head_dim)
            convert(source.type, data + walker.next() * source.stride, to, source.head_dim);
    }

    void fold_block(const RowTile& tile, uint32_t begin, uint32_t end) {
        const uint32_t first = std::max(begin, tile.some_begin);
        const uint32_t last = std::min(end, tile.some_end);
        if (first >= last) return;
        const float* keys = keys_ + (first - begin) * size_t{task_.k.head_dim};
        const float* values = values_ + (first - begin) * size_t{task_.v.head_dim};
        const size_t n = last - first;
        if (kWide > 2 && tile.n_rows > 2 * kLanes) {
            fold<kWide>(task_, tile, first, n, keys, values, scores_);
        } else if (tile.n_rows > kLanes) {
            fold<2>(task_, tile, first, n, keys, values, scores_);
        } else {
            fold<1>(task_, tile, first, n, keys, values, scores_);
        }
    }

    void end_tile(const RowTile& tile, float* out) const {
        const size_t dim_v = task_.v.head_dim;
        for (size_t r = 0; r < tile.n_rows; r++, out += partial_floats(dim_v)) {
            for (size_t i = 0; i < dim_v; i++)
                out[i] = tile.out[i * kTileRows + r];
            out[dim_v] = tile.sum[r];
            out[dim_v + 1] = tile.max[r];
        }
    }

    const TileTask& task_;
    const uint32_t head_;
    Arena arena_;
    float* keys_;    // [kBlockColumns, head_dim_k]
    float* values_;  // [kBlockColumns, head_dim_v]
    float* scores_;  // [kBlockColumns, kTileRows], then the weights
    RowTile* tiles_;
    size_t n_tiles_;
};

HWY_INLINE size_t many_scratch(size_t n_rows, size_t dim_k, size_t dim_v) {
    const size_t n_tiles = (n_rows + kTileRows - 1) / kTileRows;
    const size_t tile = (dim_k + dim_v + 7) * Arena::rounded(kTileRows) + 16;
    return kBlockColumns * (dim_k + dim_v + kTileRows) + 64 +
           n_tiles * (tile + Arena::floats<RowTile>(1));
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar
HWY_AFTER_NAMESPACE();

#endif
