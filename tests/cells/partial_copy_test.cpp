#include <gtest/gtest.h>

#include "cells/audit.h"
#include "cells/cells.h"

namespace cellar {
namespace {

void append(Cells& cells, SeqId seq, std::initializer_list<Pos> positions) {
    Batch batch;
    for (const Pos pos : positions)
        batch.add(0, seq, pos);
    auto plan = cells.prepare(batch, {});
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(cells.commit(*plan, 0));
}

// Two spans that lie over each other, with gaps: cut at 12, the one that began first begins last.
TEST(PartialCopy, SpansOverEachOtherStayInOrderOfPosition) {
    auto cells = Cells::create({{64}, 4, 1});
    ASSERT_TRUE(cells);
    append(*cells, SeqId{0}, {5, 15, 20, 21});
    append(*cells, SeqId{0}, {110, 112, 114, 116});
    ASSERT_TRUE(cells->seq_add(SeqId{0}, 100, -1, -100));
    ASSERT_TRUE(cells->seq_cp(SeqId{0}, SeqId{1}, 11, -1));
    EXPECT_EQ(audit(*cells), std::nullopt);
    EXPECT_EQ(cells->seq_pos_min(SeqId{1}), 12);
    EXPECT_EQ(cells->n_cells(SeqId{1}, 0), 6u);
}

}  // namespace
}  // namespace cellar
