#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "attention/attention_rig.h"

// Layers that attend to what another one keeps: each must equal the reference over the owner's
// rows, with queries of its own, in the very ubatch that writes them as well. Cells that nobody has
// written are NaN.

namespace cellar {
namespace {

using testing::AttentionRig;
using testing::kPaths;
using testing::Path;
using testing::RigConfig;

constexpr double kTolerance = 5e-6;  // as in attention_test.cpp

class SharedLayersTest : public ::testing::TestWithParam<std::tuple<KvType, Path>> {
protected:
    static RigConfig config(GroupKind kind) {
        RigConfig config;
        config.layer = {0, 2, 64, 32};  // keys are not as wide as values
        config.type_k = config.type_v = std::get<KvType>(GetParam());
        config.path = std::get<Path>(GetParam()).options;
        config.kind = kind;
        config.split.max_ubatch = 24;
        config.n_sharing = 2;
        return config;
    }
};

TEST_P(SharedLayersTest, AttendToTheirOwnersRowsThroughAHistory) {
    for (const GroupKind kind : {GroupKind::full(), GroupKind::sliding(16), GroupKind::sliding(5),
                                 GroupKind::chunked(16)}) {
        AttentionRig rig(config(kind));
        rig.expect_through_a_history(kTolerance);
        // Queries of their own: no layer's result is another's.
        EXPECT_NE(rig.out(0), rig.out(1));
        EXPECT_NE(rig.out(1), rig.out(2));
    }
}

// All that is attended to was written in the same step.
TEST_P(SharedLayersTest, SeeTheFirstTokenWhereItIsWritten) {
    AttentionRig rig(config(GroupKind::full()));
    EXPECT_LE(rig.append({0}, 1), kTolerance);
    EXPECT_EQ(attended_cells(rig.plan()), 1);
}

// The kernel reads them in place; the graph path gathers them once for all three layers.
TEST_P(SharedLayersTest, AreGatheredOnceAtMost) {
    AttentionRig rig(config(GroupKind::full()));
    EXPECT_LE(rig.append({0}, 20), kTolerance);
    EXPECT_EQ(rig.gathers(), std::get<Path>(GetParam()).is_graph() ? 2 : 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, SharedLayersTest,
                         ::testing::Combine(::testing::Values(KvType::kF32, KvType::kF16,
                                                              KvType::kQ8_0, KvType::kQ4_0),
                                            kPaths),
                         [](const auto& test) {
                             return std::string(name(std::get<KvType>(test.param))) + "_" +
                                    std::get<Path>(test.param).name;
                         });

}  // namespace
}  // namespace cellar
