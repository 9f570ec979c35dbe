// Included once for each SIMD target; see tile.cpp.
#if defined(CELLAR_ATTENTION_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CELLAR_ATTENTION_CONVERT_INL_H_
#undef CELLAR_ATTENTION_CONVERT_INL_H_
#else
#define CELLAR_ATTENTION_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "attention/vector_math-inl.h"

// Kept values to f32. The layouts of quantized blocks are ggml's (ggml-common.h): 32 values after
// their scale, and maybe their minimum or fifth bits.
HWY_BEFORE_NAMESPACE();
namespace cellar {
namespace HWY_NAMESPACE {

constexpr size_t kBlockValues = 32;

template <class T>
HWY_INLINE T load_as(const uint8_t* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

HWY_INLINE float load_f16(const uint8_t* bytes) {
    const hn::CappedTag<float, 1> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    return hn::GetLane(
        hn::PromoteTo(d, hn::Load(half, reinterpret_cast<const hwy::float16_t*>(bytes))));
}

// How kLanes neighbouring values of each plain type become floats.
struct FromF32 {
    static constexpr size_t kBytes = 4;
    static HWY_INLINE VecF load(const uint8_t* p) {
        return hn::LoadU(F(), reinterpret_cast<const float*>(p));
    }
};

struct FromF16 {
    static constexpr size_t kBytes = 2;
    static HWY_INLINE VecF load(const uint8_t* p) {
        const hn::Rebind<hwy::float16_t, F> half;
        return hn::PromoteTo(F(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
    }
};

struct FromBf16 {
    static constexpr size_t kBytes = 2;
    static HWY_INLINE VecF load(const uint8_t* p) {
        const hn::Rebind<uint16_t, F> half;
        const hn::RebindToUnsigned<F> wide;
        const auto bits =
            hn::PromoteTo(wide, hn::LoadU(half, reinterpret_cast<const uint16_t*>(p)));
        return hn::BitCast(F(), hn::ShiftLeft<16>(bits));
    }
};

template <class From>
HWY_INLINE void convert_plain(const uint8_t* from, float* to, size_t n) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        hn::StoreU(From::load(from + i * From::kBytes), F(), to + i);
    if (i < n) {  // head sizes that no vector divides
        HWY_ALIGN uint8_t rest[kLanes * From::kBytes] = {};
        std::memcpy(rest, from + i * From::kBytes, (n - i) * From::kBytes);
        HWY_ALIGN float values[kLanes];
        hn::Store(From::load(rest), F(), values);
        std::memcpy(to + i, values, (n - i) * sizeof(float));
    }
}

using VecI = hn::VFromD<I>;

HWY_INLINE VecF float_of_signed(const uint8_t* bytes) {
    const hn::Rebind<int8_t, F> small;
    return hn::ConvertTo(
        F(), hn::PromoteTo(I(), hn::LoadU(small, reinterpret_cast<const int8_t*>(bytes))));
}

HWY_INLINE void convert_q8_0(const uint8_t* block, float* to) {
    const VecF scale = hn::Set(F(), load_f16(block));
    for (size_t i = 0; i < kBlockValues; i += kLanes)
        hn::StoreU(hn::Mul(scale, float_of_signed(block + 2 + i)), F(), to + i);
}

// Values 0..15 of a block are the low halves of its 16 bytes, 16..31 the high ones.
template <class Put>
HWY_INLINE void each_half(const uint8_t* bytes, const Put& put) {
    const hn::Rebind<uint8_t, F> small;
    for (size_t i = 0; i < 16; i += kLanes) {
        const VecI both = hn::PromoteTo(I(), hn::LoadU(small, bytes + i));
        put(i, hn::And(both, hn::Set(I(), 15)));
        put(16 + i, hn::ShiftRight<4>(both));
    }
}

// scale * value + offset.
HWY_INLINE void convert_halves(const uint8_t* bytes, float scale, float offset, float* to) {
    each_half(bytes, [&](size_t i, VecI half) {
        hn::StoreU(hn::MulAdd(hn::Set(F(), scale), hn::ConvertTo(F(), half), hn::Set(F(), offset)),
                   F(), to + i);
    });
}

HWY_INLINE void convert_q4_0(const uint8_t* block, float* to) {
    const float scale = load_f16(block);
    convert_halves(block + 2, scale, -8 * scale, to);
}

HWY_INLINE void convert_q4_1(const uint8_t* block, float* to) {
    convert_halves(block + 4, load_f16(block), load_f16(block + 2), to);
}

// As ConvertHalves; bit i of `fifth` is worth 16 in value i.
HWY_INLINE void convert_fifths(const uint8_t* bytes, uint32_t fifth, float scale, float offset,
                               float* to) {
    const I di;
    const auto bits = hn::Set(di, static_cast<int32_t>(fifth));
    each_half(bytes, [&](size_t i, VecI half) {
        const VecI bit = hn::And(bits >> hn::Iota(di, static_cast<int32_t>(i)), hn::Set(di, 1));
        const VecF value = hn::ConvertTo(F(), hn::Or(half, hn::ShiftLeft<4>(bit)));
        hn::StoreU(hn::MulAdd(hn::Set(F(), scale), value, hn::Set(F(), offset)), F(), to + i);
    });
}

HWY_INLINE void convert_q5_0(const uint8_t* block, float* to) {
    const float scale = load_f16(block);
    convert_fifths(block + 6, load_as<uint32_t>(block + 2), scale, -16 * scale, to);
}

HWY_INLINE void convert_q5_1(const uint8_t* block, float* to) {
    convert_fifths(block + 8, load_as<uint32_t>(block + 4), load_f16(block), load_f16(block + 2),
                   to);
}

HWY_INLINE void convert_iq4_nl(const uint8_t* block, float* to) {
    // The sixteen levels of iq4_nl.
    alignas(64) static constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
    const VecF scale = hn::Set(F(), load_f16(block));
    each_half(block + 2, [&](size_t i, VecI half) {
        const auto level = hn::GatherIndex(F(), kLevels, half);
        hn::StoreU(hn::Mul(scale, level), F(), to + i);
    });
}

template <size_t kBlockBytes, class Block>
HWY_INLINE void each_block(const uint8_t* from, float* to, size_t n, const Block& block) {
    for (size_t i = 0; i < n; i += kBlockValues, from += kBlockBytes)
        block(from, to + i);
}

// n values; for quantized types whole blocks.
HWY_INLINE void convert(KvType type, const uint8_t* from, float* to, size_t n) {
    switch (type) {
        case KvType::kF32:
            return convert_plain<FromF32>(from, to, n);
        case KvType::kF16:
            return convert_plain<FromF16>(from, to, n);
        case KvType::kBf16:
            return convert_plain<FromBf16>(from, to, n);
        case KvType::kQ8_0:
            return each_block<34>(from, to, n, convert_q8_0);
        case KvType::kQ4_0:
            return each_block<18>(from, to, n, convert_q4_0);
        case KvType::kQ4_1:
            return each_block<20>(from, to, n, convert_q4_1);
        case KvType::kQ5_0:
            return each_block<22>(from, to, n, convert_q5_0);
        case KvType::kQ5_1:
            return each_block<24>(from, to, n, convert_q5_1);
        case KvType::kIq4Nl:
            return each_block<18>(from, to, n, convert_iq4_nl);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace cellar
HWY_AFTER_NAMESPACE();

#endif
