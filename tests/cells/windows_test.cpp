// What windows and states let go, and what can be gone back to.

#include <gtest/gtest.h>

#include "cells/audit.h"
#include "cells/cells.h"
#include "cells/view.h"

namespace cellar {
namespace {

constexpr SeqId kOne{0}, kOther{1};

class WindowsTest : public ::testing::Test {
protected:
    void start(const CellsConfig& config) {
        auto made = Cells::create(config);
        ASSERT_TRUE(made) << made.error().message;
        cells_.emplace(std::move(*made));
    }

    // Appends `n` items to each of the sequences, in one batch. What prepare answers.
    Result<void> append(const std::vector<SeqId>& seqs, int n, uint32_t max_ubatch = 512,
                        int checkpoint_after = -1) {
        Batch batch;
        for (const SeqId seq : seqs)
            for (int i = 0; i < n; i++) {
                batch.add(0, seq);
                if (i + 1 == checkpoint_after) batch.add_checkpoint();
            }
        SplitOptions options;
        options.max_ubatch = max_ubatch;
        auto plan = cells_->prepare(batch, options);
        if (!plan) return pass(std::move(plan));
        for (size_t i = 0; i < plan->size(); i++)
            EXPECT_TRUE(cells_->commit(*plan, i));
        EXPECT_EQ(audit(*cells_), std::nullopt);
        return {};
    }

    uint32_t pages_in_use(uint32_t group) const {
        const PagePool& pool = cells_->pool(group);
        return pool.n_pages() - pool.n_free();
    }

    std::optional<Cells> cells_;
};

CellsConfig window(uint32_t n_cells, uint32_t w) {
    CellsConfig config;
    config.group_cells = {n_cells};
    config.kinds = {GroupKind::sliding(w)};
    return config;
}

TEST_F(WindowsTest, APromptOfAnyLengthNeedsAWindowAndAUbatch) {
    CellsConfig config = window(512 + 3 + 256 + 2 * 32, 512);
    config.n_rollback = 3;
    start(config);
    ASSERT_TRUE(append({kOne}, 16000, 256));  // in a single prepare
    EXPECT_EQ(cells_->seq_pos_max(kOne), 15999);
    const GroupView view = make_view(*cells_).groups[0];
    EXPECT_LE(view.used_cells, 512u + 3 + 32);
    for (int i = 0; i < 100; i++) {
        ASSERT_TRUE(append({kOne}, 1));
        ASSERT_LE(make_view(*cells_).groups[0].used_cells, 512u + 3 + 32);
    }
}

TEST_F(WindowsTest, WhatHasNoRoomIsNamedWithTheLeastThatWouldDo) {
    start(window(96, 64));
    const auto refused = append({kOne}, 1000, 64);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_LE(refused.error().room->needed, 64u + 64 + 2 * 32);  // not 1000
    EXPECT_EQ(cells_->pool(0).n_free(), cells_->pool(0).n_pages());
}

TEST_F(WindowsTest, APlanThatIsCancelledLeavesTheWindowAsItWas) {
    start(window(64 + 64 + 64, 64));
    ASSERT_TRUE(append({kOne}, 130, 64));
    const std::vector<Span> before(cells_->spans(kOne, 0).begin(), cells_->spans(kOne, 0).end());
    Batch batch;
    for (int i = 0; i < 500; i++)
        batch.add(0, kOne);
    SplitOptions options;
    options.max_ubatch = 64;
    {
        auto plan = cells_->prepare(batch, options);
        ASSERT_TRUE(plan) << plan.error().message;
    }
    const std::vector<Span> after(cells_->spans(kOne, 0).begin(), cells_->spans(kOne, 0).end());
    EXPECT_EQ(before, after);
    for (Pos p = 0; p < static_cast<Pos>(cells_->n_cells(kOne, 0)); p++)
        EXPECT_EQ(cells_->pos(0, after[0], 0), cells_->pos(0, before[0], 0));
    EXPECT_EQ(audit(*cells_), std::nullopt);
    // And part of the way: what was committed stays.
    auto plan = cells_->prepare(batch, options);
    ASSERT_TRUE(plan);
    for (size_t i = 0; i < 3; i++)
        ASSERT_TRUE(cells_->commit(*plan, i));
    plan->cancel();
    EXPECT_EQ(cells_->seq_pos_max(kOne), 129 + 3 * 64);
    EXPECT_EQ(audit(*cells_), std::nullopt);
}

TEST_F(WindowsTest, AForkKeepsWhatItsTwinHasPassed) {
    start(window(400, 40));
    ASSERT_TRUE(append({kOne}, 100));
    ASSERT_TRUE(cells_->seq_cp(kOne, kOther, -1, -1));
    ASSERT_TRUE(append({kOne}, 100));
    EXPECT_EQ(cells_->seq_pos_max(kOther), 99);
    EXPECT_LE(cells_->seq_pos_min(kOther), 99 - 39);
    ASSERT_TRUE(cells_->seq_rm(kOther, -1, -1));
    ASSERT_TRUE(cells_->seq_rm(kOne, -1, -1));
    EXPECT_EQ(pages_in_use(0), 0u);
}

// R1 of the scenarios, as far as no logits are needed: rewinds are done or refused, never both.
TEST_F(WindowsTest, R1RewindInsideAndBeyondTheWindow) {
    for (Pos p0 = 1; p0 < 40; p0++) {
        CellsConfig config = window(128, 8);
        config.group_cells.push_back(128);  // and a full group beside it
        config.kinds.push_back(GroupKind::full());
        config.page_size = 4;
        start(config);
        ASSERT_TRUE(append({kOne}, 40, 16));
        const uint32_t used = pages_in_use(0);
        const bool can = cells_->can_rm(kOne, p0, -1).has_value();
        const auto removed = cells_->seq_rm(kOne, p0, -1);
        ASSERT_EQ(can, removed.has_value()) << p0;
        // A query at p0 sees 7 cells before it, and the last whole page behind that stays too.
        ASSERT_EQ(can, p0 >= 39) << p0;
        if (!can) {
            EXPECT_EQ(removed.error().code, Code::kForgotten);
            EXPECT_EQ(pages_in_use(0), used);
            EXPECT_EQ(cells_->seq_pos_max(kOne), 39);
        } else {
            EXPECT_EQ(cells_->seq_pos_max(kOne), p0 - 1);
            ASSERT_TRUE(append({kOne}, 1));
            EXPECT_EQ(cells_->seq_pos_max(kOne), p0);
        }
        ASSERT_TRUE(cells_->seq_rm(kOne, -1, -1));
        EXPECT_EQ(pages_in_use(0), 0u);
        EXPECT_EQ(pages_in_use(1), 0u);
    }
}

// R2: what declared a boundary shares it, however far it has gone on.
TEST_F(WindowsTest, R2FanOutOverASharedPrompt) {
    for (const int d : {0, 1, 4, 5, 6, 15, 16, 17, 64}) {
        CellsConfig config = window(400, 16);
        config.group_cells.push_back(400);
        config.kinds.push_back(GroupKind::full());
        config.page_size = 4;
        config.max_checkpoints = 2;
        start(config);
        ASSERT_TRUE(append({kOne}, 200, 64, 200));
        if (d > 0) {
            ASSERT_TRUE(append({kOne}, d));
        }
        const auto shared = cells_->seq_cp(kOne, kOther, 0, 200);
        ASSERT_TRUE(shared) << d << ": " << shared.error().message;
        EXPECT_EQ(cells_->seq_pos_max(kOther), 199);
        ASSERT_TRUE(append({kOther}, 10));
        // Anywhere else, windows back, there is nothing to go on from.
        EXPECT_FALSE(cells_->seq_cp(kOne, SeqId{2}, 0, 150));
        EXPECT_EQ(cells_->seq_pos_max(kOther), 209);
    }
}

// R3: with states, going back is exact or refused, for all groups at once.
TEST_F(WindowsTest, R3RecurrentPartialRemovalIsAtomic) {
    for (const int kept : {0, 9, 10, 11}) {  // a state of so many tokens is kept
        CellsConfig config;
        config.group_cells = {64, 8};
        config.kinds = {GroupKind::full(), GroupKind::recurrent()};
        config.max_checkpoints = 1;
        start(config);
        ASSERT_TRUE(append({kOne}, 20, 512, kept));
        const auto removed = cells_->seq_rm(kOne, 10, -1);
        ASSERT_EQ(removed.has_value(), kept == 10) << kept;
        if (!removed) {
            EXPECT_EQ(removed.error().code, Code::kForgotten);
        }
        EXPECT_EQ(cells_->seq_pos_max(kOne), kept == 10 ? 9 : 19);
        EXPECT_EQ(cells_->n_cells(kOne, 0), kept == 10 ? 10u : 20u);
        EXPECT_FALSE(cells_->seq_rm(kOne, 2, 4));
        EXPECT_FALSE(cells_->seq_add(kOne, 4, -1, 3));
        EXPECT_EQ(cells_->n_cells(kOne, 0), kept == 10 ? 10u : 20u);
        EXPECT_TRUE(cells_->seq_add(kOne, -1, -1, 3));  // all of it only moves
        EXPECT_EQ(cells_->seq_pos_max(kOne), kept == 10 ? 12 : 22);
    }
}

// R6: drafts of up to n_rollback tokens, any part of which is taken back.
TEST_F(WindowsTest, R6Speculation) {
    CellsConfig config;
    config.group_cells = {4096, 256, 16};
    config.kinds = {GroupKind::full(), GroupKind::sliding(24), GroupKind::recurrent()};
    config.page_size = 8;
    config.n_rollback = 5;
    start(config);
    ASSERT_TRUE(append({kOne}, 50));
    uint32_t random = 1;
    for (int round = 0; round < 200; round++) {
        random = random * 1664525u + 1013904223u;
        const int k = 1 + static_cast<int>(random >> 16) % 5;
        const int j = static_cast<int>(random >> 8) % (k + 1);
        const Pos before = cells_->seq_pos_max(kOne);
        ASSERT_TRUE(append({kOne}, k));
        ASSERT_TRUE(cells_->can_rm(kOne, before + 1 + k - j, -1));
        ASSERT_TRUE(cells_->seq_rm(kOne, before + 1 + k - j, -1));
        ASSERT_EQ(cells_->seq_pos_max(kOne), before + k - j);
        ASSERT_EQ(cells_->pos(2, cells_->spans(kOne, 2).back(), 0), before + k - j);
    }
}

// R10: who was promised room in a window gets it, whatever the others do.
TEST_F(WindowsTest, R10SubPoolAdmission) {
    CellsConfig config = window(4 * (16 + 32 + 2 * 8), 16);
    config.page_size = 8;
    config.max_ubatch = 32;
    start(config);
    for (int round = 0; round < 50; round++) {
        std::vector<SeqId> admitted;
        for (int s = 0; s < 6; s++)
            if (cells_->set_limits(SeqId{s}, {.guaranteed = 300})) admitted.push_back(SeqId{s});
        EXPECT_EQ(admitted.size(), 4u);
        for (int part = 0; part < 5; part++) {
            const auto appended = append(admitted, 60, 32);
            ASSERT_TRUE(appended) << appended.error().message;
        }
        for (const SeqId seq : admitted) {
            ASSERT_TRUE(cells_->seq_rm(seq, -1, -1));
            ASSERT_TRUE(cells_->set_limits(seq, {}));
        }
        ASSERT_EQ(pages_in_use(0), 0u);
    }
}

TEST_F(WindowsTest, ForksOfAStateShareItUntilTheyGoOn) {
    CellsConfig config;
    config.group_cells = {128};
    config.kinds = {GroupKind::recurrent()};
    start(config);
    ASSERT_TRUE(append({kOne}, 30));
    std::vector<SeqId> forks = {kOne};
    for (int s = 1; s < 64; s++) {
        ASSERT_TRUE(cells_->seq_cp(kOne, SeqId{s}, -1, -1));
        forks.push_back(SeqId{s});
    }
    EXPECT_EQ(pages_in_use(0), 1u);  // one state, 64 holders
    for (int step = 0; step < 3; step++) {
        ASSERT_TRUE(append(forks, 1));
        EXPECT_EQ(pages_in_use(0), 64u);
    }
}

TEST_F(WindowsTest, StatesThatRunOutAreCounted) {
    CellsConfig config;
    config.group_cells = {3};
    config.kinds = {GroupKind::recurrent()};
    start(config);
    ASSERT_TRUE(append({kOne}, 5));
    const auto refused = append({kOne, kOther, SeqId{2}}, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 3u);
    EXPECT_EQ(refused.error().room->free, 2u);
    EXPECT_NE(refused.error().message.find("3 more states"), std::string::npos)
        << refused.error().message;
}

TEST_F(WindowsTest, AStateGoesOnWhereItStands) {
    CellsConfig config;
    config.group_cells = {8};
    config.kinds = {GroupKind::recurrent()};
    start(config);
    ASSERT_TRUE(append({kOne}, 5));
    Batch batch;
    batch.add(0, kOne, 9);
    const auto refused = cells_->prepare(batch, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kBadRange);
    EXPECT_NE(refused.error().message.find("position 9"), std::string::npos);
    EXPECT_NE(refused.error().message.find("goes on at 5"), std::string::npos);
}

TEST_F(WindowsTest, CheckpointsBeyondTheBudgetGoOldestFirst) {
    CellsConfig config;
    config.group_cells = {64};
    config.kinds = {GroupKind::recurrent()};
    config.max_checkpoints = 3;
    config.max_checkpoints_all = 4;
    start(config);
    for (int i = 0; i < 5; i++) {
        ASSERT_TRUE(append({kOne}, 10));
        ASSERT_TRUE(cells_->checkpoint(kOne));
    }
    ASSERT_EQ(cells_->checkpoints(kOne).size(), 3u);
    EXPECT_EQ(cells_->checkpoints(kOne).front().pos, 29);
    EXPECT_EQ(pages_in_use(0), 3u);
    for (int i = 0; i < 2; i++) {
        ASSERT_TRUE(append({kOther}, 10));
        ASSERT_TRUE(cells_->checkpoint(kOther));
    }
    EXPECT_EQ(cells_->checkpoints(kOne).size(), 2u);
    EXPECT_EQ(cells_->checkpoints(kOther).size(), 2u);
    EXPECT_FALSE(cells_->seq_rm(kOne, 30, -1));
    EXPECT_TRUE(cells_->seq_rm(kOne, 40, -1));
    EXPECT_EQ(cells_->seq_pos_max(kOne), 39);
}

}  // namespace
}  // namespace cellar
