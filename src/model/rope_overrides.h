#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace cellar {

// How a model was stretched beyond the context it was first trained on. Llama 3's stretching is
// kLinear or kNone here with factor 1: its file carries the tensor rope_freqs.weight instead.
enum class RopeScaling { kNone, kLinear, kYarn, kLongRope };

// What a caller wants otherwise than a model's file says of its rotary positions. The bounds are
// those of check().
struct RopeOverrides {
    static constexpr float kMinBase = 1, kMaxBase = 1e12f;  // the largest in use is 5e8
    static constexpr float kMinScale = 1.0f / 65536, kMaxScale = 1024;
    static constexpr float kMinMagnitude = 1e-3f, kMaxMagnitude = 1e3f;
    static constexpr float kMinBeta = 1e-3f, kMaxBeta = 1e6f;

    std::optional<float> freq_base = {};      // of layers that have no base of their own
    std::optional<float> freq_scale = {};     // 1 / how many times longer contexts became
    std::optional<RopeScaling> scaling = {};  // never kLongRope
    // Of YaRN (arXiv:2309.00071): how much frequencies are blended, 0 to 1, instead of what
    // `scaling` implies; a factor on magnitudes besides the recipe's; the turns in the original
    // context between which frequencies are blended; that context, in tokens.
    std::optional<float> yarn_ext_factor = {};
    std::optional<float> yarn_attn_factor = {};
    std::optional<float> yarn_beta_fast = {};
    std::optional<float> yarn_beta_slow = {};
    std::optional<uint32_t> yarn_orig_ctx = {};

    bool any() const;

    // Errors: kInvalidArgument for a number out of its bounds, or NaN.
    Result<void> check() const;
};

}  // namespace cellar
