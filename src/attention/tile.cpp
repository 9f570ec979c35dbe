#include "attention/tile.h"

// Compiled once for each SIMD target; the CPU's best is chosen when the program runs. Targets whose
// vectors have no size at compile time are left out, and SSSE3, which gains nothing over SSE4.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/tile.cpp"
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attention/tile_few-inl.h"
#include "attention/tile_many-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cellar {
namespace HWY_NAMESPACE {

size_t scratch_floats(size_t n_kv_heads, size_t n_rows, size_t dim_k, size_t dim_v) {
    return std::max(few_scratch(n_kv_heads, dim_k, dim_v), many_scratch(n_rows, dim_k, dim_v));
}

void attend(const TileTask& task, float* scratch, float* out, size_t out_stride) {
    if (task.n_rows() <= kFewRows) return attend_few(task, scratch, out, out_stride);
    for (uint32_t head = 0; head < task.n_kv_heads; head++)
        ManyRows(task, head, scratch).run(out + head * out_stride);
}

void merge(std::span<const float* const> partials, size_t dim_v, const float* sink, float* out) {
    const F d;
    float max = sink == nullptr ? kUnseen : *sink;
    for (const float* partial : partials)
        max = std::max(max, partial[dim_v + 1]);
    float sum = sink == nullptr ? 0 : hn::GetLane(pow2(hn::Set(d, *sink - max)));
    std::fill_n(out, dim_v, 0.0f);
    for (const float* partial : partials) {
        const VecF scale = pow2(hn::Set(d, partial[dim_v + 1] - max));
        sum += partial[dim_v] * hn::GetLane(scale);
        size_t i = 0;
        for (; i + kLanes <= dim_v; i += kLanes)
            hn::StoreU(hn::MulAdd(scale, hn::LoadU(d, partial + i), hn::LoadU(d, out + i)), d,
                       out + i);
        for (; i < dim_v; i++)
            out[i] += hn::GetLane(scale) * partial[i];
    }
    const float factor = 1 / sum;
    for (size_t i = 0; i < dim_v; i++)
        out[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cellar {

HWY_EXPORT(scratch_floats);
HWY_EXPORT(attend);
HWY_EXPORT(merge);

size_t tile_scratch_floats(size_t n_kv_heads, size_t n_rows, size_t head_dim_k, size_t head_dim_v) {
    return HWY_DYNAMIC_DISPATCH(scratch_floats)(n_kv_heads, n_rows, head_dim_k, head_dim_v);
}

void attend_tile(const TileTask& task, float* scratch, float* out, size_t out_stride) {
    HWY_DYNAMIC_DISPATCH(attend)(task, scratch, out, out_stride);
}

void merge_partials(std::span<const float* const> partials, size_t head_dim_v,
                    const float* sink_log2, float* out) {
    HWY_DYNAMIC_DISPATCH(merge)(partials, head_dim_v, sink_log2, out);
}

}  // namespace cellar
#endif
