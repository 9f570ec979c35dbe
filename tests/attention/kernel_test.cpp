#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/attention_rig.h"
#include "attention/tile.h"

// What holds for the kernel alone: for each SIMD target, any shape and any number of threads.

namespace cellar {
namespace {

using testing::AttentionRig;
using testing::RigConfig;

// As in attention_test.cpp.
constexpr double kTolerance = 5e-6;

// Makes the kernel compute as on a CPU that has nothing better than this target.
class OnTarget {
public:
    explicit OnTarget(int64_t target) {
        hwy::SetSupportedTargetsForTest(target);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
    ~OnTarget() {
        hwy::SetSupportedTargetsForTest(0);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
    OnTarget(const OnTarget&) = delete;
    OnTarget& operator=(const OnTarget&) = delete;
};

class KernelTargetTest : public ::testing::TestWithParam<int64_t> {};

// Few rows and many, tiles that are full and not, widths that vectors divide and others.
TEST_P(KernelTargetTest, EqualsTheReference) {
    const OnTarget on(GetParam());
    struct Shape {
        LayerKv layer;
        uint32_t n_head;
    };
    for (const Shape& shape : {Shape{{0, 3, 64, 64}, 9}, Shape{{0, 2, 20, 12}, 4},
                               Shape{{0, 1, 80, 128}, 7}, Shape{{0, 1, 256, 256}, 1}}) {
        RigConfig config;
        config.layer = shape.layer;
        config.n_head = shape.n_head;
        config.params.scale = 0.1f;
        AttentionRig rig(config);
        EXPECT_LE(rig.append({0}, 1), kTolerance);
        EXPECT_LE(rig.append({0}, 75), kTolerance);
        rig.fork(0, 1);
        rig.fork(0, 2);
        EXPECT_LE(rig.append({0, 1, 2}, 1), kTolerance);
        EXPECT_LE(rig.append({1}, 1), kTolerance);
        EXPECT_LE(rig.append({2, 3}, 33), kTolerance);
    }
}

TEST_P(KernelTargetTest, ReadsEveryType) {
    const OnTarget on(GetParam());
    for (const KvType type :
         {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kQ8_0, KvType::kQ4_0, KvType::kQ4_1,
          KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl}) {
        RigConfig config;
        config.layer = {0, 2, 64, 32};
        config.type_k = config.type_v = type;
        AttentionRig rig(config);
        EXPECT_LE(rig.append({0}, 70), kTolerance) << name(type);
        EXPECT_LE(rig.append({0}, 1), kTolerance) << name(type);
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelTargetTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return hwy::TargetName(test.param); });

// Work is divided by the plan alone, so not a bit depends on who does which part of it.
TEST(KernelTest, TheNumberOfThreadsChangesNoBit) {
    const auto outputs = [](int n_threads) {
        RigConfig config;
        config.layer = {0, 2, 64, 64};
        config.n_head = 6;
        config.n_cells = 4096;
        config.split.max_ubatch = 512;
        config.n_threads = n_threads;
        AttentionRig rig(config);
        std::vector<float> all;
        const auto take = [&](double difference) {
            EXPECT_LE(difference, kTolerance);
            all.insert(all.end(), rig.out().begin(), rig.out().end());
        };
        take(rig.append({0}, 400));
        rig.fork(0, 1);
        take(rig.append({0}, 1));
        take(rig.append({0, 1, 2}, 1));
        take(rig.append({1, 2}, 50));
        return all;
    };
    const std::vector<float> one = outputs(1);
    for (const int n_threads : {2, 3, 5, 16})
        EXPECT_EQ(outputs(n_threads), one) << n_threads;
}

// Scores far below the greatest weigh nothing, and cost no slow denormal numbers either.
TEST(KernelTest, ScoresMayLieFarApart) {
    for (const uint32_t n_head : {2u, 16u}) {
        RigConfig config;
        config.layer = {0, 2, 32, 32};
        config.n_head = n_head;
        config.params.scale = 60;
        AttentionRig rig(config);
        EXPECT_LE(rig.append({0}, 90), 1e-4);
        EXPECT_LE(rig.append({0}, 1), 1e-4);
    }
}

TEST(KernelTest, ASinkTakesItsShareOfTheWeights) {
    // One value of weight 1 at a score of 0, and a sink at a score of log2(3).
    std::vector<float> partial(partial_floats(16), 0.0f);
    std::fill_n(partial.begin(), 16, 8.0f);
    partial[16] = 1;
    const float* partials[] = {partial.data()};
    std::vector<float> out(16);
    const float sink = 1.5849625f;
    merge_partials(partials, 16, &sink, out.data());
    for (const float x : out)
        EXPECT_NEAR(x, 2.0f, 1e-6f);
}

// A history that RapidCheck draws: everything that decides how work is divided.
RC_GTEST_PROP(KernelProperty, EqualsTheReferenceOverAnyShapeAndHistory, ()) {
    using rc::gen::element;
    using rc::gen::inRange;
    const auto type = element(KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kQ8_0,
                              KvType::kQ4_1, KvType::kQ5_0, KvType::kIq4Nl);
    RigConfig config;
    config.layer = {0, *inRange(1u, 4u), 32 * *inRange(1u, 4u), 32 * *inRange(1u, 4u)};
    config.n_head = config.layer.n_head_kv * *inRange(1u, 6u);
    config.type_k = *type;
    config.type_v = *type;
    config.page_size = *element(1u, 8u, 32u);
    config.kind = *element(GroupKind::full(), GroupKind::full(), GroupKind::sliding(7),
                           GroupKind::sliding(64), GroupKind::chunked(24));
    config.n_cells = 2048;
    config.n_threads = *inRange(1, 4);
    config.path.share = *element(true, true, false);
    config.params.softcap = *element(0.0f, 0.0f, 5.0f);
    config.params.max_alibi_bias = *element(0.0f, 0.0f, 8.0f);
    config.split.max_ubatch = *element(16u, 256u);
    AttentionRig rig(config);
    int n_seqs = 1;
    for (int step = *inRange(3, 8); step > 0; step--) {
        switch (*inRange(0, 5)) {
            case 0:
                rig.fork(*inRange(0, n_seqs), n_seqs);
                n_seqs++;
                break;
            case 1:
                rig.remove_tail(*inRange(0, n_seqs), *inRange(0, 100));
                break;
            case 2: {
                const int p0 = *inRange(0, 60);
                rig.remove_range(*inRange(0, n_seqs), p0, p0 + *inRange(0, 40));
                break;
            }
            default: {
                std::vector<int> seqs;
                for (int seq = 0; seq < n_seqs; seq++) {
                    if (*inRange(0, 3) > 0) seqs.push_back(seq);
                }
                if (!seqs.empty()) RC_ASSERT(rig.append(seqs, *element(1u, 2u, 40u)) <= 2e-5);
            }
        }
    }
}

}  // namespace
}  // namespace cellar
