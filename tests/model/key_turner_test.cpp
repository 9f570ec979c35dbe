#include "model/key_turner.h"

#include <gtest/gtest.h>

#include <vector>

namespace cellar {
namespace {

CellMove move(uint32_t from, uint32_t to, uint16_t to_first, uint16_t count, uint32_t group = 0) {
    return {group, {PageId{from}, PageId{to}, 0, to_first, count}, true};
}

TEST(MovesAtOnceTest, PagesThatFillUpAreOneGraph) {
    const std::vector<CellMove> moves = {move(0, 8, 0, 16), move(1, 8, 16, 16), move(2, 9, 0, 32)};
    EXPECT_EQ(moves_at_once(moves), 3);
}

TEST(MovesAtOnceTest, WhatReadsAWrittenPageWaits) {
    const std::vector<CellMove> moves = {move(0, 8, 0, 32), move(1, 9, 0, 32), move(8, 10, 0, 32)};
    EXPECT_EQ(moves_at_once(moves), 2);
}

// A page that a verb wrote, another gave back and a third took: its cells would be turned twice.
TEST(MovesAtOnceTest, WhatWritesWrittenCellsWaits) {
    EXPECT_EQ(moves_at_once(std::vector{move(0, 8, 0, 16), move(1, 8, 0, 32)}), 1);
    EXPECT_EQ(moves_at_once(std::vector{move(0, 8, 0, 16), move(1, 8, 15, 4)}), 1);
    EXPECT_EQ(moves_at_once(std::vector{move(0, 8, 0, 32), move(1, 9, 0, 32), move(2, 8, 0, 4)}),
              2);
}

TEST(MovesAtOnceTest, AnotherGroupWaits) {
    EXPECT_EQ(moves_at_once(std::vector{move(0, 8, 0, 16), move(0, 8, 0, 16, 1)}), 1);
}

TEST(MovesAtOnceTest, AGraphHasAFewThousandCells) {
    std::vector<CellMove> moves;
    for (uint32_t i = 0; i < 100; i++)
        moves.push_back(move(i, 1000 + i, 0, 256));
    EXPECT_EQ(moves_at_once(moves), 16);
}

}  // namespace
}  // namespace cellar
