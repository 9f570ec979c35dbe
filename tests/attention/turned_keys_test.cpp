#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "attention/attention_rig.h"
#include "attention/rope.h"

// Attention on cells that moved, against keys that were turned to their new positions in double
// precision, for each kind and scaling of rope.

namespace cellar {
namespace {

using testing::AttentionRig;
using testing::kPaths;
using testing::Path;
using testing::RigConfig;

// As in graph_attention_test.cpp. Measured: at most 1.2e-6.
constexpr double kTolerance = 1e-5;

struct RopeCase {
    const char* name;
    Rope rope;
    bool factors = false;
};

std::ostream& operator<<(std::ostream& out, const RopeCase& c) {
    return out << c.name;
}

Rope rope(int mode, int n_dims = 32) {
    Rope rope;
    rope.mode = mode;
    rope.n_dims = n_dims;
    rope.n_ctx_orig = 64;
    rope.freq_base = 500;
    return rope;
}

Rope sections(int mode) {
    Rope sectioned = rope(mode);
    sectioned.sections = {8, 4, 4, 0};
    return sectioned;
}

bool has_sections(const Rope& rope) {
    return (rope.mode & GGML_ROPE_TYPE_MROPE) != 0;
}

Rope linear() {
    Rope scaled = rope(GGML_ROPE_TYPE_NORMAL);
    scaled.freq_scale = 0.25f;
    return scaled;
}

Rope yarn() {
    Rope scaled = rope(GGML_ROPE_TYPE_NEOX);
    scaled.freq_scale = 0.25f;
    scaled.ext_factor = 1;
    scaled.attn_factor = 1.3f;
    scaled.beta_fast = 8;
    return scaled;
}

double factor(size_t pair) {
    return 1 + 0.5 * static_cast<double>(pair % 3);
}

// The angle by which one position turns a pair (YaRN: arXiv:2309.00071, 3.2).
double angle(const RopeCase& c, size_t pair) {
    const Rope& r = c.rope;
    const double base = static_cast<double>(r.freq_base), n_dims = r.n_dims;
    const double plain = std::pow(base, -2.0 * static_cast<double>(pair) / n_dims) /
                         (c.factors ? factor(pair) : 1.0);
    const double scaled = plain * static_cast<double>(r.freq_scale);
    if (r.ext_factor == 0) return scaled;
    const auto pair_of = [&](float turns) {
        return n_dims *
               std::log(r.n_ctx_orig / (static_cast<double>(turns) * 2 * std::numbers::pi)) /
               (2 * std::log(base));
    };
    const double low = std::max(0.0, std::floor(pair_of(r.beta_fast)));
    const double high = std::min(n_dims - 1, std::ceil(pair_of(r.beta_slow)));
    const double ramp =
        std::clamp((static_cast<double>(pair) - low) / std::max(0.001, high - low), 0.0, 1.0);
    return scaled * ramp + plain * (1 - ramp);
}

std::vector<float> turned(const RopeCase& c, std::vector<float> key, Pos delta) {
    const auto n_dims = static_cast<size_t>(c.rope.n_dims);
    const bool neox = c.rope.mode == GGML_ROPE_TYPE_NEOX || has_sections(c.rope);
    constexpr size_t kHeadDim = 32;
    for (size_t head = 0; head < key.size(); head += kHeadDim) {
        for (size_t pair = 0; pair < n_dims / 2; pair++) {
            const double a = angle(c, pair) * delta;
            float& x = key[head + (neox ? pair : 2 * pair)];
            float& y = key[head + (neox ? pair + n_dims / 2 : 2 * pair + 1)];
            const double x0 = static_cast<double>(x), y0 = static_cast<double>(y);
            x = static_cast<float>(x0 * std::cos(a) - y0 * std::sin(a));
            y = static_cast<float>(x0 * std::sin(a) + y0 * std::cos(a));
        }
    }
    return key;
}

class TurnedKeysTest : public ::testing::TestWithParam<std::tuple<RopeCase, KvType, Path>> {
protected:
    TurnedKeysTest() {
        context_.reset(ggml_init({.mem_size = 4096, .mem_buffer = nullptr, .no_alloc = false}));
        rope_ = rope_case().rope;
        if (rope_case().factors) {
            rope_.factors = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, rope_.n_dims / 2);
            for (size_t pair = 0; pair < static_cast<size_t>(rope_.n_dims) / 2; pair++)
                static_cast<float*>(rope_.factors->data)[pair] = static_cast<float>(factor(pair));
        }
    }

    static const RopeCase& rope_case() { return std::get<RopeCase>(GetParam()); }

    RigConfig config() const {
        RigConfig config;
        config.type_k = std::get<KvType>(GetParam());
        config.path = std::get<Path>(GetParam()).options;
        config.params.rope = &rope_;
        config.n_pos = has_sections(rope_) ? 4 : 1;
        return config;
    }

    ggml_context_ptr context_;
    Rope rope_;
};

TEST_P(TurnedKeysTest, EqualKeysAtTheirNewPositions) {
    const auto turn = [](const std::vector<float>& key, Pos delta) {
        return turned(rope_case(), key, delta);
    };
    AttentionRig rig(config());
    EXPECT_LE(rig.append({0}, 60), kTolerance);
    rig.fork(0, 1);
    rig.fork(0, 2);
    rig.remove_range(1, 8, 24);
    rig.shift(1, 24, -16, turn);
    EXPECT_LE(rig.append({1}, 1), kTolerance);
    EXPECT_LE(rig.append({0, 1, 2}, 3), kTolerance);  // the same cells, moved and not
    rig.shift(2, 5, 40, turn);
    rig.shift(1, 30, 7, turn);
    EXPECT_LE(rig.append({2, 1, 0}, 2), kTolerance);
}

TEST_P(TurnedKeysTest, EqualKeysOfALayerThatIsShared) {
    RigConfig shared = config();
    shared.n_sharing = 1;
    AttentionRig rig(shared);
    EXPECT_LE(rig.append({0}, 30), kTolerance);
    rig.fork(0, 1);
    rig.shift(1, 5, 40, [](const std::vector<float>& key, Pos delta) {
        return turned(rope_case(), key, delta);
    });
    EXPECT_LE(rig.append({1, 0}, 2), kTolerance);
}

class ScenarioR18 : public TurnedKeysTest {};

TEST_P(ScenarioR18, ShiftWithEveryKeyType) {
    const auto turn = [](const std::vector<float>& key, Pos delta) {
        return turned(rope_case(), key, delta);
    };
    AttentionRig rig(config()), moved_to_and_fro(config());
    for (AttentionRig* each : {&rig, &moved_to_and_fro}) {
        ASSERT_TRUE(each->memory().can_shift());
        EXPECT_LE(each->append({0}, 40), kTolerance);
        each->remove_range(0, 4, 20);
        each->shift(0, 20, -16, turn);
        EXPECT_EQ(each->memory().seq_pos_max(SeqId{0}), 23);
    }
    for (int i = 0; i < 50; i++) {
        ASSERT_TRUE(moved_to_and_fro.memory().seq_add(SeqId{0}, 10, -1, 1));
        ASSERT_TRUE(moved_to_and_fro.memory().seq_add(SeqId{0}, 11, -1, -1));
    }
    EXPECT_LE(rig.append({0}, 3), kTolerance);
    EXPECT_LE(moved_to_and_fro.append({0}, 3), kTolerance);
    EXPECT_EQ(rig.out(), moved_to_and_fro.out());
}

const auto kRopes = ::testing::Values(
    RopeCase{"Norm", rope(GGML_ROPE_TYPE_NORMAL)}, RopeCase{"Neox", rope(GGML_ROPE_TYPE_NEOX)},
    RopeCase{"Partial", rope(GGML_ROPE_TYPE_NEOX, 20)}, RopeCase{"Linear", linear()},
    RopeCase{"Yarn", yarn()}, RopeCase{"Mrope", sections(GGML_ROPE_TYPE_MROPE)},
    RopeCase{"Imrope", sections(GGML_ROPE_TYPE_IMROPE)},
    RopeCase{"Factors", rope(GGML_ROPE_TYPE_NORMAL), true});

std::string case_name(const ::testing::TestParamInfo<std::tuple<RopeCase, KvType, Path>>& test) {
    return std::string(std::get<RopeCase>(test.param).name) + "_" +
           std::string(name(std::get<KvType>(test.param))) + "_" + std::get<Path>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(Ropes, TurnedKeysTest,
                         ::testing::Combine(kRopes,
                                            ::testing::Values(KvType::kF32, KvType::kF16,
                                                              KvType::kQ8_0, KvType::kQ4_0),
                                            kPaths),
                         case_name);

INSTANTIATE_TEST_SUITE_P(
    Ropes, ScenarioR18,
    ::testing::Combine(kRopes,
                       ::testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kQ8_0,
                                         KvType::kQ5_1, KvType::kQ5_0, KvType::kQ4_1, KvType::kQ4_0,
                                         KvType::kIq4Nl),
                       kPaths),
    case_name);

}  // namespace
}  // namespace cellar
