#include "model/rope_overrides.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

namespace cellar {

namespace {

Result<void> check_in(std::string_view name, std::optional<float> value, float low, float high) {
    // Written so that NaN is outside.
    if (!value || (*value >= low && *value <= high)) return {};
    return fail(Code::kInvalidArgument,
                fmt::format("{} is {}; it must be from {} to {}", name, *value, low, high));
}

}  // namespace

bool RopeOverrides::any() const {
    return freq_base || freq_scale || scaling || yarn_ext_factor || yarn_attn_factor ||
           yarn_beta_fast || yarn_beta_slow || yarn_orig_ctx;
}

Result<void> RopeOverrides::check() const {
    struct Bound {
        std::string_view name;
        std::optional<float> value;
        float low, high;
    };
    const Bound bounds[] = {
        {"the rope's frequency base", freq_base, kMinBase, kMaxBase},
        {"the rope's frequency scale", freq_scale, kMinScale, kMaxScale},
        {"YaRN's extrapolation factor", yarn_ext_factor, 0, 1},
        {"YaRN's attention factor", yarn_attn_factor, kMinMagnitude, kMaxMagnitude},
        {"YaRN's beta fast", yarn_beta_fast, kMinBeta, kMaxBeta},
        {"YaRN's beta slow", yarn_beta_slow, kMinBeta, kMaxBeta},
    };
    for (const Bound& bound : bounds) {
        if (auto ok = check_in(bound.name, bound.value, bound.low, bound.high); !ok) return ok;
    }
    constexpr uint32_t kMaxContext = std::numeric_limits<int32_t>::max();
    if (yarn_orig_ctx && (*yarn_orig_ctx == 0 || *yarn_orig_ctx > kMaxContext))
        return fail(Code::kInvalidArgument,
                    fmt::format("YaRN's original context is {} tokens; it must be from 1 to {}",
                                *yarn_orig_ctx, kMaxContext));
    if (scaling == RopeScaling::kLongRope)
        return fail(Code::kInvalidArgument,
                    "LongRoPE cannot be asked for: its factors are tensors of a model's file");
    return {};
}

}  // namespace cellar
