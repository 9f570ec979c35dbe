#include "cells/audit.h"

#include <gtest/gtest.h>

#include <array>

#include "cells/cells.h"

namespace cellar {
namespace {

// Two sequences of ten cells in pages of four, their last page kept.
class AuditTest : public testing::Test {
protected:
    void SetUp() override {
        Batch batch;
        for (int i = 0; i < 10; i++)
            batch.add(i, std::array{SeqId{0}, SeqId{1}});
        auto plan = cells_.prepare(batch, {});
        ASSERT_TRUE(plan && cells_.commit(*plan, 0));
        auto hold = cells_.keep(0, cells_.spans(SeqId{0}, 0).back());
        ASSERT_TRUE(hold);
        hold_ = std::move(*hold);
    }

    // What a bug in a verb would do.
    void miscount() {
        const Span& first = cells_.spans(SeqId{0}, 0)[0];
        const_cast<PagePool&>(cells_.pool(0)).hold(first.page, first.end());
    }

    Cells cells_ = *Cells::create({{64}, 4, 1});
    Hold hold_;
};

TEST_F(AuditTest, KeepersAreCountedOrTrusted) {
    EXPECT_EQ(audit(cells_, std::span<const Hold>(&hold_, 1)), std::nullopt);
    EXPECT_NE(audit(cells_), std::nullopt);
    EXPECT_EQ(audit_trusting_keepers(cells_), std::nullopt);
}

TEST_F(AuditTest, AHolderTooManyIsFound) {
    miscount();
    EXPECT_NE(audit(cells_, std::span<const Hold>(&hold_, 1)), std::nullopt);
    EXPECT_NE(audit_trusting_keepers(cells_), std::nullopt);
}

TEST_F(AuditTest, DebugBuildsAuditAfterEachVerb) {
    const auto removes_nothing = [this] { return cells_.seq_rm(SeqId{5}, -1, -1).has_value(); };
    EXPECT_TRUE(removes_nothing());
    miscount();
    bool removed = true;
    EXPECT_DEBUG_DEATH(removed = removes_nothing(),
                       "audit of the cells: page 0 has 3 holders at end 4, 2 were found");
    EXPECT_TRUE(removed);
}

}  // namespace
}  // namespace cellar
