#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "cells/audit.h"
#include "cells/cells.h"

// Positions of several components: what moves must stay a position in each of them.

namespace cellar {
namespace {

constexpr SeqId kSeq{0};
constexpr Pos kRow = 1 << 30;

class VectorPositions : public ::testing::Test {
protected:
    // Ten tokens of text, then four cells of an image at one time, in a far row.
    void SetUp() override {
        CellsConfig config;
        config.group_cells = {64};
        config.page_size = 8;
        config.n_pos = 3;
        cells_ = *Cells::create(config);
        Batch batch(3);
        for (int i = 0; i < 10; i++)
            batch.add(i, kSeq);
        for (Pos column = 0; column < 4; column++)
            batch.add_at(99, {&kSeq, 1}, std::array<Pos, 3>{10, kRow, 10 + column});
        auto plan = cells_->prepare(batch, {});
        ASSERT_TRUE(plan) << plan.error().message;
        for (size_t i = 0; i < plan->size(); i++)
            ASSERT_TRUE(cells_->commit(*plan, i));
    }

    // Positions as they are seen, component by component.
    std::vector<Pos> seen() const {
        std::vector<Pos> list;
        for (const Span& s : cells_->spans(kSeq, 0))
            for (uint32_t i = 0; i < s.count; i++)
                for (uint32_t c = 0; c < 3; c++)
                    list.push_back(cells_->pool(0).component(s.page, s.first + i, c) + s.delta);
        return list;
    }

    std::optional<Cells> cells_;
};

TEST_F(VectorPositions, AShiftThatNoComponentPassesTheGreatestWithIsDone) {
    const std::vector<Pos> before = seen();
    constexpr Pos kDelta = kMaxPos - 1 - kRow;
    ASSERT_TRUE(cells_->seq_add(kSeq, 10, kOpen, kDelta));
    std::vector<Pos> expected = before;
    for (size_t i = 30; i < expected.size(); i++)
        expected[i] += kDelta;
    EXPECT_EQ(seen(), expected);
    EXPECT_FALSE(audit(*cells_));
}

TEST_F(VectorPositions, OneThatARowWouldPassTheGreatestWithIsRefused) {
    const std::vector<Pos> before = seen();
    const auto moved = cells_->seq_add(kSeq, 10, kOpen, kMaxPos - kRow);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, Code::kBadRange);
    EXPECT_EQ(seen(), before);
    // What moved already counts.
    ASSERT_TRUE(cells_->seq_add(kSeq, 10, kOpen, kRow / 2));
    EXPECT_FALSE(cells_->seq_add(kSeq, 10, kOpen, kRow / 2 + (1 << 29)));
    // Text alone has no rows.
    EXPECT_TRUE(cells_->seq_add(kSeq, 0, 10, kRow));
}

}  // namespace
}  // namespace cellar
