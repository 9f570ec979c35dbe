#include <gtest/gtest.h>

#include "cells/audit.h"
#include "cells/cells.h"
#include "cells/view.h"

namespace cellar {
namespace {

// Pools of up to 20 pages of 4 cells, which begin with 16 cells and grow by as many.
class GrowthTest : public testing::Test {
protected:
    static Cells make(std::vector<uint32_t> group_cells) {
        CellsConfig config;
        config.group_cells = std::move(group_cells);
        config.page_size = 4;
        config.grow_step = 14;  // rounded up to 16
        return std::move(*Cells::create(config));
    }

    Result<Plan> prepare(int seq, uint32_t n) {
        Batch batch;
        for (uint32_t i = 0; i < n; i++)
            batch.add(0, SeqId{seq});
        return cells_.prepare(batch, {});
    }
    void append(int seq, uint32_t n) {
        auto plan = prepare(seq, n);
        ASSERT_TRUE(plan) << plan.error().message;
        ASSERT_TRUE(cells_.commit(*plan, 0));
        EXPECT_EQ(audit(cells_), std::nullopt);
    }
    uint32_t pages(uint32_t group = 0) const { return cells_.pool(group).n_pages(); }

    Cells cells_ = make({80});
};

TEST_F(GrowthTest, PoolsGrowInStepsWhenTheyAreFull) {
    EXPECT_EQ(pages(), 4u);
    append(0, 16);
    EXPECT_EQ(pages(), 4u);
    append(0, 1);
    EXPECT_EQ(pages(), 8u);
    append(1, 33);  // 9 pages more than the 5 taken: two steps at once
    EXPECT_EQ(pages(), 16u);
    append(1, 20);
    EXPECT_EQ(pages(), 20u);
    EXPECT_EQ(make_view(cells_).groups[0].max_pages, 20u);
}

TEST_F(GrowthTest, TheBudgetEndsGrowthWithTheNumbersAndNoChange) {
    append(0, 17);
    const auto refused = prepare(1, 61);  // 16 pages; 3 are free and 12 may come
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 64u);
    EXPECT_EQ(refused.error().room->free, 60u);
    EXPECT_EQ(pages(), 8u);
    EXPECT_EQ(audit(cells_), std::nullopt);
    append(1, 60);
    EXPECT_EQ(pages(), 20u);
    EXPECT_EQ(prepare(2, 1).error().room->free, 0u);
}

TEST_F(GrowthTest, WhatIsGivenBackIsUsedBeforeThePoolGrows) {
    append(0, 16);
    ASSERT_TRUE(cells_.seq_rm(SeqId{0}, -1, -1));
    append(1, 16);
    EXPECT_EQ(pages(), 4u);
}

TEST_F(GrowthTest, VerbsThatNeedPagesLetThePoolGrow) {
    append(0, 16);
    ASSERT_TRUE(cells_.seq_div(SeqId{0}, 0, -1, 2));  // re-encodes into four pages
    EXPECT_EQ(pages(), 8u);
    cells_.finish_moves();
    EXPECT_EQ(audit(cells_), std::nullopt);
}

TEST_F(GrowthTest, PromisesLetThePoolGrow) {
    append(0, 16);
    ASSERT_TRUE(cells_.set_limits(SeqId{1}, {40, 40}));
    EXPECT_EQ(pages(), 16u);
    EXPECT_EQ(cells_.reserved_pages(0), 10u);
    EXPECT_EQ(cells_.set_limits(SeqId{2}, {28, 28}).error().code, Code::kNoRoom);  // 24 are left
    append(0, 24);
    EXPECT_EQ(pages(), 20u);
    EXPECT_EQ(prepare(0, 1).error().code, Code::kNoRoom);
    append(1, 40);
}

TEST_F(GrowthTest, EveryGroupGrowsOrNone) {
    cells_ = make({80, 32});
    const auto refused = prepare(0, 33);  // room for it in the first group only
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().room->needed, 36u);
    EXPECT_EQ(refused.error().room->free, 32u);
    EXPECT_EQ(pages(0), 4u);
    EXPECT_EQ(pages(1), 4u);
    append(0, 32);
    EXPECT_EQ(pages(0), 8u);
    EXPECT_EQ(pages(1), 8u);
}

// A guarantee is room that nobody else can have; what lies above it comes from what all share.
TEST_F(GrowthTest, LimitsTellPrivateFromSharedRoom) {
    ASSERT_TRUE(cells_.set_limits(SeqId{0}, {20, 40}));  // 5 pages are its own, 15 shared
    EXPECT_EQ(cells_.reserved_pages(0), 5u);
    const auto refused = prepare(1, 61);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().room->needed, 64u);
    EXPECT_EQ(refused.error().room->free, 60u);
    append(1, 60);
    append(0, 20);
    EXPECT_EQ(cells_.reserved_pages(0), 0u);
    EXPECT_EQ(prepare(0, 1).error().room->free, 0u);
    ASSERT_TRUE(cells_.seq_rm(SeqId{1}, -1, -1));
    const auto beyond = prepare(0, 21);
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().room->needed, 21u);
    EXPECT_EQ(beyond.error().room->free, 20u);
    append(0, 20);
}

}  // namespace
}  // namespace cellar
