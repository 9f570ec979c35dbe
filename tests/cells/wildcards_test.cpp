#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "cells/cells.h"

namespace cellar {
namespace {

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

// Each rule once, with its number: what the random calls of ScenarioR21 compare.
class ScenarioR21Rules : public ::testing::Test {
protected:
    void SetUp() override {
        Batch batch;
        for (int i = 0; i < 10; i++)
            batch.add(i, std::array{SeqId{0}, SeqId{kMost}});
        auto plan = cells_.prepare(batch, {});
        ASSERT_TRUE(plan && cells_.commit(*plan, 0));
    }
    uint32_t held(int seq) const { return cells_.n_cells(SeqId{seq}, 0); }

    Cells cells_ = *Cells::create({{64}, 4, 1});
};

TEST_F(ScenarioR21Rules, MinusOneNamesEverySequenceButNoTargetOfACopy) {
    ASSERT_TRUE(cells_.seq_rm(kEverySeq, 8, -1));
    EXPECT_EQ(held(0), 8u);
    EXPECT_EQ(held(kMost), 8u);
    ASSERT_TRUE(cells_.seq_add(kEverySeq, 4, -1, 2));
    EXPECT_EQ(cells_.seq_pos_max(SeqId{kMost}), 9);
    ASSERT_TRUE(cells_.seq_keep(kEverySeq));
    EXPECT_EQ(held(0), 8u);
    EXPECT_EQ(cells_.seq_cp(kEverySeq, SeqId{1}, -1, -1).error().code, Code::kInvalidArgument);
    EXPECT_EQ(cells_.seq_cp(SeqId{0}, kEverySeq, -1, -1).error().code, Code::kInvalidArgument);
    EXPECT_EQ(held(1), 0u);
}

TEST(CanShift, NotWhereAGroupKeepsStatesWithoutParts) {
    EXPECT_TRUE(Cells::create({{64}, 4, 1})->can_shift());
    const auto with = [](GroupKind kind) {
        return Cells::create({{64, 64}, 4, 1, 8, {GroupKind::full(), kind}})->can_shift();
    };
    EXPECT_TRUE(with(GroupKind::sliding(8)));
    EXPECT_FALSE(with(GroupKind::recurrent()));
}

TEST_F(ScenarioR21Rules, NegativeEndsAreOpenAndAnInvertedRangeIsRefused) {
    EXPECT_EQ(cells_.seq_rm(SeqId{0}, 5, 3).error().code, Code::kBadRange);
    EXPECT_EQ(cells_.seq_add(SeqId{0}, 5, 3, 1).error().code, Code::kBadRange);
    EXPECT_EQ(cells_.seq_div(SeqId{0}, 5, 3, 2).error().code, Code::kBadRange);
    EXPECT_EQ(cells_.seq_cp(SeqId{0}, SeqId{1}, 5, 3).error().code, Code::kBadRange);
    ASSERT_TRUE(cells_.seq_rm(SeqId{0}, 5, 5));
    EXPECT_EQ(held(0), 10u);
    ASSERT_TRUE(cells_.seq_rm(SeqId{0}, kLeast, 2));
    EXPECT_EQ(cells_.seq_pos_min(SeqId{0}), 2);
    ASSERT_TRUE(cells_.seq_rm(SeqId{0}, 6, kLeast));
    EXPECT_EQ(cells_.seq_pos_max(SeqId{0}), 5);
}

TEST_F(ScenarioR21Rules, AbsentSequencesAreEmptyAndOthersAreNone) {
    for (const int absent : {5, kMost - 1}) {
        EXPECT_TRUE(cells_.seq_rm(SeqId{absent}, -1, -1));
        EXPECT_TRUE(cells_.seq_add(SeqId{absent}, 0, -1, kMost));
        EXPECT_TRUE(cells_.seq_div(SeqId{absent}, 0, -1, kMost));
        EXPECT_EQ(cells_.seq_pos_min(SeqId{absent}), -1);
        EXPECT_EQ(cells_.seq_pos_max(SeqId{absent}), -1);
    }
    for (const int none : {-2, kLeast}) {
        EXPECT_EQ(cells_.seq_rm(SeqId{none}, -1, -1).error().code, Code::kInvalidArgument);
        EXPECT_EQ(cells_.seq_keep(SeqId{none}).error().code, Code::kInvalidArgument);
        EXPECT_EQ(cells_.seq_pos_max(SeqId{none}), -1);
    }
    ASSERT_TRUE(cells_.seq_cp(SeqId{5}, SeqId{0}, 0, 4));  // replaced by what an absent one sees
    EXPECT_EQ(held(0), 6u);
    ASSERT_TRUE(cells_.seq_keep(SeqId{5}));
    EXPECT_EQ(cells_.pool(0).n_free(), cells_.pool(0).n_pages());
}

}  // namespace
}  // namespace cellar
