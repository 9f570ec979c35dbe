#include <gtest/gtest.h>

#include <limits>

#include "cells/audit.h"
#include "cells/cells.h"

namespace cellar {
namespace {

// Four sequences of 16 cells in pages of 8. Of each, the first page keeps 2 cells and the second,
// which it can append to, 3.
class DefragTest : public testing::Test {
protected:
    void SetUp() override {
        for (int s = 0; s < 4; s++) {
            Batch batch;
            for (int i = 0; i < 16; i++)
                batch.add(i, SeqId{s});
            auto plan = cells_.prepare(batch, {});
            ASSERT_TRUE(plan && cells_.commit(*plan, 0));
            ASSERT_TRUE(cells_.seq_rm(SeqId{s}, 2, 8));
            ASSERT_TRUE(cells_.seq_rm(SeqId{s}, 11, -1));
        }
    }
    uint32_t free_pages() const { return cells_.pool(0).n_free(); }

    Cells cells_ = *Cells::create({{128}, 8, 1});
};

// 24 of 32 cells are unused in the four pages that do not grow.
TEST_F(DefragTest, NothingMovesUntilMoreThanTheThresholdIsUnused) {
    auto moved = cells_.defrag_if_above(0.75, 1000);
    ASSERT_TRUE(moved);
    EXPECT_EQ(*moved, 0u);
    EXPECT_EQ(free_pages(), 8u);
    moved = cells_.defrag_if_above(0.749, 1000);
    ASSERT_TRUE(moved);
    EXPECT_EQ(*moved, 8u);
    cells_.finish_moves();
    EXPECT_EQ(free_pages(), 11u);
    EXPECT_EQ(audit(cells_), std::nullopt);
    EXPECT_EQ(*cells_.defrag_if_above(0.0, 1000), 0u);  // nothing is unused any more
}

TEST_F(DefragTest, OneStepMovesAtMostWhatItMay) {
    EXPECT_EQ(*cells_.defrag_if_above(0.5, 5), 4u);  // whole pages: two of 2 cells
    cells_.finish_moves();
    EXPECT_EQ(free_pages(), 9u);
    // The new page holds 4 of 8 and the two left 2 each: 16 of 24 are unused.
    EXPECT_EQ(*cells_.defrag_if_above(0.67, 1000), 0u);
    EXPECT_EQ(*cells_.defrag_if_above(0.66, 1000), 8u);
    cells_.finish_moves();
    EXPECT_EQ(free_pages(), 11u);
}

TEST_F(DefragTest, PagesThatAreKeptDoNotCount) {
    std::vector<Hold> holds;
    for (int s = 0; s < 3; s++)
        holds.push_back(std::move(*cells_.keep(0, cells_.spans(SeqId{s}, 0)[0])));
    EXPECT_EQ(*cells_.defrag_if_above(0.0, 1000), 0u);  // one page is left: no gain
    holds.pop_back();
    EXPECT_EQ(*cells_.defrag_if_above(0.0, 1000), 4u);
    EXPECT_EQ(audit(cells_, holds), std::nullopt);
}

TEST_F(DefragTest, AThresholdLiesFromZeroToOne) {
    for (const double absurd : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
        EXPECT_EQ(cells_.defrag_if_above(absurd, 1000).error().code, Code::kInvalidArgument);
    EXPECT_EQ(*cells_.defrag_if_above(1.0, 1000), 0u);
    Batch batch;
    batch.add(0, SeqId{0});
    auto plan = cells_.prepare(batch, {});
    EXPECT_EQ(cells_.defrag_if_above(0.5, 1000).error().code, Code::kBusy);
}

}  // namespace
}  // namespace cellar
