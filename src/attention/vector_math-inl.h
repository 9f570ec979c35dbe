// Included once for each SIMD target; see tile.cpp.
#if defined(CELLAR_ATTENTION_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CELLAR_ATTENTION_VECTOR_MATH_INL_H_
#undef CELLAR_ATTENTION_VECTOR_MATH_INL_H_
#else
#define CELLAR_ATTENTION_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace cellar {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::RebindToSigned<F>;
using VecF = hn::VFromD<F>;

constexpr size_t kLanes = HWY_LANES(float);

// 2^x for x <= 0, or a little above; 2^-64 for all that is less, which no sum in f32 beside a 1
// notices, and whose products are no slow denormal numbers. Relative error at most 2e-7: the
// fraction's polynomial is of degree 5, the best in relative error over [-1/2, 1/2] (7.5e-8).
HWY_INLINE VecF pow2(VecF x) {
    const F d;
    const I di;
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
    const VecF magic = hn::Set(d, 12582912.0f);
    x = hn::Max(x, hn::Set(d, -64.0f));
    const VecF shifted = hn::Add(x, magic);
    const VecF f = hn::Sub(x, hn::Sub(shifted, magic));
    VecF p = hn::MulAdd(hn::Set(d, 1.327647129e-3f), f, hn::Set(d, 9.675541893e-3f));
    p = hn::MulAdd(p, f, hn::Set(d, 5.550713092e-2f));
    p = hn::MulAdd(p, f, hn::Set(d, 2.402212024e-1f));
    p = hn::MulAdd(p, f, hn::Set(d, 6.931469440e-1f));
    p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

// tanh(x) = 1 - 2 / (e^2x + 1), of |x|, with x's sign.
HWY_INLINE VecF tanh_of(VecF x) {
    const F d;
    const VecF one = hn::Set(d, 1.0f);
    const VecF e = pow2(hn::Mul(hn::Abs(x), hn::Set(d, -2.885390082f)));  // e^-2|x|
    return hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
}

// Sums of four vectors' lanes, not yet complete: each block of four lanes holds a part of each sum.
HWY_INLINE VecF sum_four(VecF a, VecF b, VecF c, VecF e) {
#if HWY_TARGET == HWY_SCALAR
    (void)b, (void)c, (void)e;
    return a;
#else
    const F d;
    const hn::Repartition<double, F> d64;
    const auto x =
        hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    const auto y =
        hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, x, y)),
                   hn::BitCast(d, hn::InterleaveUpper(d64, x, y)));
#endif
}

constexpr size_t kFours = kLanes < 4 ? 1 : kLanes / 4;  // in a vector

// The whole sums out of as many results of sum_four: kLanes of them, in order.
HWY_INLINE VecF join_fours(const VecF (&four)[kFours]) {
#if HWY_TARGET == HWY_SCALAR
    return four[0];
#else
    if constexpr (kFours == 1) {
        return four[0];
    } else {
        const F d;
        if constexpr (kFours == 2) {
            return hn::Add(hn::ConcatLowerLower(d, four[1], four[0]),
                           hn::ConcatUpperUpper(d, four[1], four[0]));
        } else {
            const VecF x = hn::Add(hn::ConcatLowerLower(d, four[2], four[0]),
                                   hn::ConcatUpperUpper(d, four[2], four[0]));  // blocks 0 0 2 2
            const VecF y = hn::Add(hn::ConcatLowerLower(d, four[3], four[1]),
                                   hn::ConcatUpperUpper(d, four[3], four[1]));  // blocks 1 1 3 3
            return hn::OddEvenBlocks(hn::Add(y, hn::SwapAdjacentBlocks(y)),
                                     hn::Add(x, hn::SwapAdjacentBlocks(x)));
        }
    }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar
HWY_AFTER_NAMESPACE();

#endif
