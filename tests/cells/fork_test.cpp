#include <gtest/gtest.h>

#include "cells/audit.h"
#include "cells/cells.h"

namespace cellar {
namespace {

// One group; verbs that must succeed.
class ForkTest : public testing::Test {
protected:
    void start(uint32_t n_cells, uint32_t page_size) {
        auto made = Cells::create({{n_cells}, page_size, 1});
        ASSERT_TRUE(made) << made.error().message;
        cells_.emplace(std::move(*made));
    }

    // Appends `n` tokens to a sequence; returns the copies that were due.
    std::vector<CellCopy> append(int seq, uint32_t n, uint32_t max_ubatch = 512) {
        Batch batch;
        for (uint32_t i = 0; i < n; i++)
            batch.add(static_cast<Token>(i), SeqId{seq});
        SplitOptions options;
        options.max_ubatch = max_ubatch;
        auto plan = cells_->prepare(batch, options);
        EXPECT_TRUE(plan) << plan.error().message;
        std::vector<CellCopy> copies;
        for (size_t i = 0; plan && i < plan->size(); i++) {
            const auto& due = plan->ubatch(i).groups[0].copies;
            copies.insert(copies.end(), due.begin(), due.end());
            EXPECT_TRUE(cells_->commit(*plan, i));
        }
        EXPECT_EQ(audit(*cells_), std::nullopt);
        return copies;
    }

    void fork(int from, int to) {
        EXPECT_TRUE(cells_->seq_cp(SeqId{from}, SeqId{to}, -1, -1));
        EXPECT_EQ(audit(*cells_), std::nullopt);
    }

    uint32_t free_pages() const { return cells_->pool(0).n_free(); }

    std::optional<Cells> cells_;
};

TEST_F(ForkTest, ForkTakesNoPage) {
    start(256, 32);
    append(0, 70);
    const uint32_t before = free_pages();
    fork(0, 1);
    EXPECT_EQ(free_pages(), before);
    EXPECT_EQ(cells_->seq_pos_max(SeqId{1}), 69);
}

TEST_F(ForkTest, FirstToAppendWritesInPlaceAndTheOtherCopiesOnePage) {
    start(256, 32);
    append(0, 40);
    fork(0, 1);
    EXPECT_TRUE(append(0, 1).empty());
    const auto copies = append(1, 1);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].count, 8);
    EXPECT_EQ(cells_->spans(SeqId{0}, 0)[0], cells_->spans(SeqId{1}, 0)[0]);
    EXPECT_NE(cells_->spans(SeqId{0}, 0)[1].page, cells_->spans(SeqId{1}, 0)[1].page);
    EXPECT_TRUE(append(1, 5).empty());
}

TEST_F(ForkTest, BothInOneBatchDivergeWithOneCopy) {
    start(256, 32);
    append(0, 40);
    fork(0, 1);
    Batch batch;
    batch.add(1, SeqId{0});
    batch.add(2, SeqId{1});
    auto plan = cells_->prepare(batch, {});
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->ubatch(0).groups[0].copies.size(), 1u);
    EXPECT_NE(plan->ubatch(0).groups[0].cells[0], plan->ubatch(0).groups[0].cells[1]);
    ASSERT_TRUE(cells_->commit(*plan, 0));
    EXPECT_EQ(audit(*cells_), std::nullopt);
}

TEST_F(ForkTest, RejectedTailGivesItsCellsBack) {
    start(64, 32);
    append(0, 10);
    append(0, 4);
    const uint32_t generation = cells_->pool(0).generation(cells_->spans(SeqId{0}, 0)[0].page);
    ASSERT_TRUE(cells_->seq_rm(SeqId{0}, 10, -1));
    EXPECT_EQ(cells_->pool(0).fill(cells_->spans(SeqId{0}, 0)[0].page), 10u);
    EXPECT_GT(cells_->pool(0).generation(cells_->spans(SeqId{0}, 0)[0].page), generation);
    EXPECT_TRUE(append(0, 4).empty());
    EXPECT_EQ(free_pages(), 1u);
}

TEST_F(ForkTest, DroppedPlanLeavesNothing) {
    start(256, 32);
    append(0, 40);
    fork(0, 1);
    const uint32_t before = free_pages();
    {
        Batch batch;
        for (int i = 0; i < 100; i++)
            batch.add(i, SeqId{1});
        auto plan = cells_->prepare(batch, {});
        ASSERT_TRUE(plan);
        EXPECT_LT(free_pages(), before);
        EXPECT_EQ(cells_->seq_rm(SeqId{0}, 0, -1).error().code, Code::kBusy);
    }
    EXPECT_EQ(free_pages(), before);
    EXPECT_EQ(cells_->seq_pos_max(SeqId{1}), 39);
    EXPECT_EQ(audit(*cells_), std::nullopt);
}

TEST_F(ForkTest, NoRoomTellsTheNumbersAndChangesNothing) {
    start(64, 32);
    append(0, 40);
    Batch batch;
    for (int i = 0; i < 100; i++)
        batch.add(i, SeqId{1});
    auto plan = cells_->prepare(batch, {});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::kNoRoom);
    EXPECT_EQ(plan.error().room->needed, 128u);
    EXPECT_EQ(plan.error().room->free, 0u);
    EXPECT_EQ(audit(*cells_), std::nullopt);
    EXPECT_TRUE(append(0, 24).empty());
}

}  // namespace
}  // namespace cellar
