#include "model/rope_config.h"

#include <fmt/format.h>
#include <ggml.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "gguf/printable.h"
#include "model/metadata.h"

namespace cellar {

namespace {

constexpr uint32_t kMaxContext = std::numeric_limits<int32_t>::max();
constexpr float kMaxFactor = 65536;        // the largest in use is 64
constexpr float kMinFactor = 1.0f / 1024;  // keeps 1 + 0.1 ln(factor) above 0.3

Result<RopeScaling> read_scaling(const GgufFile& file, const std::string& prefix) {
    auto name = file.find_string(prefix + "scaling.type");
    if (!name) return pass(std::move(name));
    const std::string_view text = name->value_or("linear");
    if (text == "none") return RopeScaling::kNone;
    if (text == "linear") return RopeScaling::kLinear;
    if (text == "yarn") return RopeScaling::kYarn;
    if (text == "longrope") return RopeScaling::kLongRope;
    return fail(Code::kUnsupported, fmt::format("{}: rope scaling of type '{}' is unknown",
                                                file.path(), printable(text)));
}

// How many times longer contexts became: 0 in the file, or no key, means 1.
Result<float> read_factor(const GgufFile& file, const std::string& prefix) {
    const bool current = file.has(prefix + "scaling.factor");
    const std::string key = prefix + (current ? "scaling.factor" : "scale_linear");
    auto factor = real_in(file, key, 0, kMaxFactor, 0);
    if (factor && *factor == 0) return 1.0f;
    if (factor && *factor < kMinFactor)
        return fail(Code::kBadFile, fmt::format("{}: key '{}' is {}, which is too small",
                                                file.path(), key, *factor));
    return factor;
}

// ggml multiplies magnitudes by 1 + 0.1 ln(factor) when it blends frequencies (YaRN), and so does
// the paper's recipe (arXiv:2309.00071, 3.4): what we hand to ggml cancels one of the two. Below 1
// the recipe's own factor is 1 and ggml's is cancelled all the same.
float yarn_attn_factor(float factor) {
    const float stretched = 1.0f + 0.1f * std::log(factor);
    return (factor <= 1.0f ? 1.0f : stretched) / stretched;
}

Result<uint32_t> read_original_context(const GgufFile& file, const std::string& prefix,
                                       uint32_t n_ctx_train) {
    auto found = find_count_in(file, prefix + "scaling.original_context_length", 0, kMaxContext);
    if (!found) return pass(std::move(found));
    return found->value_or(0) == 0 ? n_ctx_train : **found;
}

Result<void> check_dimensions(const GgufFile& file, const std::string& prefix, uint32_t head_dim) {
    auto n_dims = file.find_integer(prefix + "dimension_count");
    if (!n_dims) return pass(std::move(n_dims));
    if (n_dims->value_or(head_dim) != head_dim || head_dim % 2 != 0)
        return fail(Code::kBadFile,
                    fmt::format("{}: rotary positions turn {} dimensions of heads {} wide; "
                                "all of an even number are expected",
                                file.path(), n_dims->value_or(head_dim), head_dim));
    return {};
}

// Sets what follows from the scaling, its factor and the magnitude.
void settle(RopeConfig& config, std::optional<float> ext_factor) {
    Rope& rope = config.rope;
    const float factor = config.scaling == RopeScaling::kNone ? 1.0f : config.factor;
    rope.freq_scale = 1.0f / factor;
    rope.ext_factor = ext_factor.value_or(config.scaling == RopeScaling::kYarn ? 1.0f : 0.0f);
    const bool blends = rope.ext_factor != 0.0f;
    rope.attn_factor = config.magnitude * (blends ? yarn_attn_factor(factor) : 1.0f);
}

}  // namespace

Result<RopeConfig> read_rope(const GgufFile& file, std::string_view architecture, uint32_t head_dim,
                             uint32_t n_ctx_train) {
    const std::string prefix = fmt::format("{}.rope.", architecture);
    if (auto checked = check_dimensions(file, prefix, head_dim); !checked)
        return pass(std::move(checked));
    auto scaling = read_scaling(file, prefix);
    if (!scaling) return pass(std::move(scaling));
    auto factor = read_factor(file, prefix);
    if (!factor) return pass(std::move(factor));
    auto base = real_in(file, prefix + "freq_base", RopeOverrides::kMinBase,
                        RopeOverrides::kMaxBase, 10000);
    if (!base) return pass(std::move(base));
    auto magnitude = real_in(file, prefix + "scaling.attn_factor", RopeOverrides::kMinMagnitude,
                             RopeOverrides::kMaxMagnitude, 1);
    if (!magnitude) return pass(std::move(magnitude));
    auto n_ctx_orig = read_original_context(file, prefix, n_ctx_train);
    if (!n_ctx_orig) return pass(std::move(n_ctx_orig));

    RopeConfig config;
    config.scaling = *scaling;
    config.rope.n_dims = static_cast<int>(head_dim);
    config.rope.mode = GGML_ROPE_TYPE_NORMAL;
    config.rope.n_ctx_orig = static_cast<int>(*n_ctx_orig);
    config.rope.freq_base = *base;
    config.factor = *factor;
    config.magnitude = *magnitude;
    settle(config, std::nullopt);
    return config;
}

Result<void> override_rope(RopeConfig& config, const RopeOverrides& overrides) {
    if (auto ok = overrides.check(); !ok) return ok;
    RopeConfig changed = config;
    changed.scaling = overrides.scaling.value_or(config.scaling);
    if (overrides.freq_scale && changed.scaling == RopeScaling::kNone)
        return fail(Code::kInvalidArgument,
                    fmt::format("a rope's frequency scale of {} means nothing without scaling, "
                                "linear or yarn",
                                *overrides.freq_scale));
    if (overrides.freq_scale) changed.factor = 1.0f / *overrides.freq_scale;
    changed.magnitude *= overrides.yarn_attn_factor.value_or(1.0f);
    Rope& rope = changed.rope;
    rope.freq_base = overrides.freq_base.value_or(rope.freq_base);
    rope.beta_fast = overrides.yarn_beta_fast.value_or(rope.beta_fast);
    rope.beta_slow = overrides.yarn_beta_slow.value_or(rope.beta_slow);
    if (overrides.yarn_orig_ctx) rope.n_ctx_orig = static_cast<int>(*overrides.yarn_orig_ctx);
    settle(changed, overrides.yarn_ext_factor);
    if (rope.beta_fast < rope.beta_slow)
        return fail(Code::kInvalidArgument,
                    fmt::format("YaRN's beta fast is {}, below beta slow, {}", rope.beta_fast,
                                rope.beta_slow));
    if (rope.ext_factor == 0.0f && (overrides.yarn_beta_fast || overrides.yarn_beta_slow))
        return fail(Code::kInvalidArgument,
                    "YaRN's betas mean nothing where frequencies are not blended: ask for yarn "
                    "scaling");
    config = changed;
    return {};
}

}  // namespace cellar
