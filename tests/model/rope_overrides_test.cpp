#include "model/rope_overrides.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "gguf/gguf_file.h"
#include "model/model.h"
#include "model/rope_config.h"

namespace cellar {
namespace {

// A model that was trained on 256 tokens of context, with base 10000 and no scaling.
RopeConfig plain() {
    RopeConfig config;
    config.rope.n_dims = 16;
    config.rope.n_ctx_orig = 256;
    return config;
}

RopeConfig overridden(const RopeOverrides& overrides) {
    RopeConfig config = plain();
    auto done = override_rope(config, overrides);
    EXPECT_TRUE(done) << done.error().message;
    return config;
}

TEST(RopeOverrides, OfNothingChangeNothing) {
    const Rope rope = overridden({}).rope, before = plain().rope;
    EXPECT_FALSE(RopeOverrides().any());
    EXPECT_EQ(rope.freq_base, before.freq_base);
    EXPECT_EQ(rope.freq_scale, 1.0f);
    EXPECT_EQ(rope.ext_factor, 0.0f);
    EXPECT_EQ(rope.attn_factor, 1.0f);
}

TEST(RopeOverrides, OfBaseAndScale) {
    const RopeConfig config = overridden({.freq_base = 5e5f, .freq_scale = 0.25f});
    EXPECT_EQ(config.rope.freq_base, 5e5f);
    EXPECT_EQ(config.rope.freq_scale, 0.25f);
    EXPECT_EQ(config.rope.ext_factor, 0.0f);
    EXPECT_EQ(config.rope.attn_factor, 1.0f);
}

TEST(RopeOverrides, OfScalingTurnItOnAndOff) {
    const RopeConfig yarn = overridden({.freq_scale = 0.125f,
                                        .scaling = RopeScaling::kYarn,
                                        .yarn_attn_factor = 0.5f,
                                        .yarn_beta_fast = 16.0f,
                                        .yarn_beta_slow = 2.0f,
                                        .yarn_orig_ctx = 32});
    EXPECT_EQ(yarn.rope.freq_scale, 0.125f);
    EXPECT_EQ(yarn.rope.ext_factor, 1.0f);
    EXPECT_FLOAT_EQ(yarn.rope.attn_factor, 0.5f);  // ggml's own magnitude is the recipe's
    EXPECT_EQ(yarn.rope.beta_fast, 16.0f);
    EXPECT_EQ(yarn.rope.beta_slow, 2.0f);
    EXPECT_EQ(yarn.rope.n_ctx_orig, 32);

    RopeConfig off = yarn;
    ASSERT_TRUE(override_rope(off, {.scaling = RopeScaling::kNone}));
    EXPECT_EQ(off.rope.freq_scale, 1.0f);
    EXPECT_EQ(off.rope.ext_factor, 0.0f);

    RopeConfig half = yarn;
    ASSERT_TRUE(override_rope(half, {.yarn_ext_factor = 0.5f}));
    EXPECT_EQ(half.rope.ext_factor, 0.5f);
    EXPECT_EQ(half.rope.freq_scale, 0.125f);
}

TEST(RopeOverrides, ThatMakeNoSenseAreRefusedAndChangeNothing) {
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    const RopeOverrides absurd[] = {
        {.freq_base = 0.0f},
        {.freq_base = nan},
        {.freq_base = inf},
        {.freq_scale = 0.0f},
        {.freq_scale = -1.0f},
        {.freq_scale = nan},
        {.scaling = RopeScaling::kLongRope},
        {.freq_scale = 0.5f, .scaling = RopeScaling::kNone},
        {.scaling = RopeScaling::kYarn, .yarn_ext_factor = 1.5f},
        {.yarn_attn_factor = 0.0f},
        {.scaling = RopeScaling::kYarn, .yarn_beta_fast = nan},
        {.scaling = RopeScaling::kYarn, .yarn_beta_fast = 1.0f, .yarn_beta_slow = 2.0f},
        {.yarn_beta_fast = 16.0f},
        {.yarn_orig_ctx = 0},
        {.yarn_orig_ctx = 1u << 31},
    };
    for (const RopeOverrides& overrides : absurd) {
        RopeConfig config = plain();
        const auto refused = override_rope(config, overrides);
        ASSERT_FALSE(refused) << &overrides - absurd;
        EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
        EXPECT_EQ(config.rope.freq_scale, 1.0f);
        EXPECT_EQ(config.rope.n_ctx_orig, 256);
        EXPECT_EQ(config.rope.ext_factor, 0.0f);
    }
}

Result<std::unique_ptr<Model>> load(const std::string& name, const RopeOverrides& rope) {
    auto file = GgufFile::open(CELLAR_TEST_DATA "/models/" + name);
    EXPECT_TRUE(file) << file.error().message;
    LoadOptions options;
    options.rope = rope;
    return load_model(*file, options);
}

TEST(RopeOverrides, ReachEveryArchitectureThatTurns) {
    for (const char* name : {"tiny-llama.gguf", "tiny-qwen3.gguf", "tiny-gemma3.gguf"}) {
        const auto model = load(name, {.freq_base = 77777.0f});
        ASSERT_TRUE(model) << model.error().message;
        uint32_t n_changed = 0;
        for (uint32_t layer = 0; layer < (*model)->info().n_layer; layer++)
            n_changed += (*model)->rope(layer, 256)->freq_base == 77777.0f ? 1 : 0;
        EXPECT_GT(n_changed, 0u) << name;
        EXPECT_EQ(load(name, {.freq_base = 0.5f}).error().code, Code::kInvalidArgument);
    }
    EXPECT_EQ(load("tiny-mpt.gguf", {.freq_base = 77777.0f}).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace cellar
