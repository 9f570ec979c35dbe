#include "attention/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace cellar {
namespace {

// One group of cells; batches are scheduled and committed, nothing is computed.
class ScheduleTest : public ::testing::Test {
protected:
    void start(uint32_t n_cells, uint32_t page_size) {
        CellsConfig config;
        config.group_cells = {n_cells};
        config.page_size = page_size;
        auto made = Cells::create(config);
        ASSERT_TRUE(made) << made.error().message;
        cells_.emplace(std::move(*made));
    }

    std::vector<Schedule> run(const Batch& batch, uint32_t max_ubatch = 512) {
        SplitOptions options;
        options.max_ubatch = max_ubatch;
        auto plan = cells_->prepare(batch, options);
        EXPECT_TRUE(plan) << plan.error().message;
        std::vector<Schedule> schedules;
        for (size_t i = 0; plan && i < plan->size(); i++) {
            schedules.push_back(make_schedule(*cells_, plan->ubatch(i), 0));
            EXPECT_TRUE(cells_->commit(*plan, i));
        }
        return schedules;
    }

    Schedule append(const std::vector<int>& seqs, uint32_t n = 1) {
        Batch batch;
        for (const int seq : seqs) {
            for (uint32_t i = 0; i < n; i++)
                batch.add(0, SeqId{seq});
        }
        return run(batch).at(0);
    }

    void fork(int from, int to) { EXPECT_TRUE(cells_->seq_cp(SeqId{from}, SeqId{to}, -1, -1)); }

    int32_t zero_row() const {
        return static_cast<int32_t>(cells_->pool(0).n_pages() * cells_->page_size());
    }

    std::optional<Cells> cells_;
};

// Columns that a query sees, in order of position.
std::vector<uint32_t> visible(const Schedule& s, size_t i) {
    const Schedule::Query& query = s.queries.at(i);
    const Schedule::View& view = s.views.at(query.view);
    std::vector<uint32_t> columns;
    for (uint32_t p = view.first_piece; p < view.first_piece + view.n_pieces; p++) {
        for (uint32_t c = 0; c < s.pieces.at(p).count; c++) {
            columns.push_back(view.stream * s.length + s.pieces[p].column + c);
        }
    }
    EXPECT_LE(query.end, columns.size());
    columns.resize(query.end);
    return columns;
}

TEST_F(ScheduleTest, AQuerySeesItselfAndWhatStandsBefore) {
    start(256, 16);
    append({0}, 20);
    const Schedule s = append({0}, 5);
    EXPECT_EQ(s.n_tokens, 5);
    for (size_t i = 0; i < 5; i++) {
        const auto columns = visible(s, i);
        ASSERT_EQ(columns.size(), 21 + i);
        for (size_t p = 0; p < columns.size(); p++) {
            EXPECT_EQ(s.positions[columns[p]], static_cast<Pos>(p));
        }
        EXPECT_EQ(s.queries[i].pos, static_cast<Pos>(20 + i));
    }
}

TEST_F(ScheduleTest, CountsPairsOfQueriesAndCellsExactly) {
    start(256, 16);
    EXPECT_EQ(append({0}, 20).attended_cells, 20 * 21 / 2);
    const Schedule s = append({0}, 5);
    EXPECT_EQ(s.attended_cells, 21 + 22 + 23 + 24 + 25);
    EXPECT_EQ(s.read_cells, 25);
}

TEST_F(ScheduleTest, UbatchesOfOneBatchSeeThoseBefore) {
    start(256, 16);
    Batch batch;
    for (int i = 0; i < 50; i++)
        batch.add(0, SeqId{0});
    uint64_t attended = 0;
    for (const Schedule& s : run(batch, 12))
        attended += s.attended_cells;
    EXPECT_EQ(attended, 50 * 51 / 2);
}

// Other sequences in the memory or in the batch cost a query nothing.
TEST_F(ScheduleTest, WhatAQueryAttendsDoesNotDependOnOtherSequences) {
    start(4096, 16);
    append({0}, 100);
    const Schedule alone = append({0});
    for (int seq = 1; seq < 20; seq++)
        append({seq}, 50);
    const Schedule beside = append({0});
    EXPECT_EQ(alone.attended_cells, 101);
    EXPECT_EQ(beside.attended_cells, 102);
    EXPECT_EQ(beside.read_cells, 102);
    const Schedule together = append({0, 1, 2});
    EXPECT_EQ(together.attended_cells, 103 + 51 + 51);
    EXPECT_EQ(together.read_cells, 103 + 51 + 51);
}

TEST_F(ScheduleTest, SharedCellsAreReadOnceAndAttendedByEach) {
    start(4096, 16);
    append({0}, 1000);
    std::vector<int> seqs{0};
    for (int seq = 1; seq < 16; seq++) {
        fork(0, seq);
        seqs.push_back(seq);
    }
    const Schedule s = append(seqs);
    EXPECT_EQ(s.n_streams, 1);
    EXPECT_EQ(s.attended_cells, 16 * 1001);
    EXPECT_EQ(s.read_cells, 1000 + 16);
    EXPECT_EQ(s.length, length_class(1016));
}

TEST_F(ScheduleTest, PrivateContextsAreReadApart) {
    start(4096, 16);
    append({0, 1, 2, 3}, 100);
    const Schedule s = append({3, 1, 0, 2});
    EXPECT_EQ(s.n_streams, 4);
    EXPECT_EQ(s.length, length_class(101));
    EXPECT_TRUE(s.in_order);
    for (size_t i = 0; i < 4; i++) {
        for (const uint32_t column : visible(s, i))
            EXPECT_EQ(column / s.length, i);
    }
}

TEST_F(ScheduleTest, UnequalSequencesShareOneStreamAndSeeOnlyTheirOwn) {
    start(4096, 16);
    append({0, 1}, 100);
    Batch batch;
    batch.add(0, SeqId{0});
    for (int i = 0; i < 3; i++)
        batch.add(0, SeqId{1});
    const Schedule s = run(batch).at(0);
    EXPECT_EQ(s.n_streams, 1);
    const auto first = visible(s, 0), last = visible(s, 3);
    for (const uint32_t column : first) {
        EXPECT_EQ(std::count(last.begin(), last.end(), column), 0) << column;
    }
    EXPECT_EQ(s.attended_cells, 101 + 101 + 102 + 103);
}

TEST_F(ScheduleTest, StreamsOfAlternatingItemsAreListedOneAfterTheOther) {
    start(4096, 16);
    Batch batch;
    for (int i = 0; i < 50; i++) {
        batch.add(0, SeqId{1});
        batch.add(0, SeqId{0});
    }
    const Schedule s = run(batch).at(0);
    ASSERT_EQ(s.n_streams, 2);
    EXPECT_FALSE(s.in_order);
    for (uint32_t i = 0; i < 50; i++) {
        EXPECT_EQ(s.order[i], 2 * i);
        EXPECT_EQ(s.order[50 + i], 2 * i + 1);
        EXPECT_EQ(s.queries[i].end, i + 1);
    }
}

TEST_F(ScheduleTest, PaddingIsTheZeroRow) {
    start(4096, 16);
    append({0, 1}, 37);
    for (const Schedule& s : {append({0}), append({0, 1})}) {
        std::vector<bool> is_cell(s.rows.size(), false);
        for (size_t i = 0; i < s.n_tokens; i++) {
            for (const uint32_t column : visible(s, i))
                is_cell[column] = true;
        }
        for (size_t c = 0; c < s.rows.size(); c++) {
            EXPECT_EQ(s.rows[c] == zero_row(), !is_cell[c]) << c;
        }
    }
}

TEST_F(ScheduleTest, PagesInAnyOrderGiveEachCellItsPosition) {
    start(128, 16);
    append({0}, 64);
    append({1}, 40);
    ASSERT_TRUE(cells_->seq_rm(SeqId{0}, 20, -1));
    append({1}, 40);  // into what sequence 0 left, before and behind its own pages
    const Schedule s = append({1, 0});
    for (size_t i = 0; i < 2; i++) {
        const auto columns = visible(s, i);
        for (size_t p = 0; p < columns.size(); p++) {
            EXPECT_EQ(s.positions[columns[p]], static_cast<Pos>(p)) << "query " << i;
        }
    }
}

// A fork that moved shares its rows with the sequence that did not, but in columns of its own.
TEST_F(ScheduleTest, RowsSeenWithDifferentDeltasAreColumnsApart) {
    start(4096, 16);
    append({0}, 500);
    fork(0, 1);
    EXPECT_TRUE(append({0, 1}).turns.empty());
    ASSERT_TRUE(cells_->seq_rm(SeqId{1}, 0, 100));
    ASSERT_TRUE(cells_->seq_add(SeqId{1}, 0, -1, -100));
    Batch batch;
    batch.add(0, SeqId{0});
    for (int i = 0; i < 2; i++)
        batch.add(0, SeqId{1});
    const Schedule s = run(batch).at(0);
    EXPECT_EQ(s.n_streams, 1);
    EXPECT_EQ(s.read_cells, 501 + 5 + 1 + 2);
    EXPECT_EQ(s.attended_cells, 502 + 402 + 403);
    ASSERT_EQ(s.turns.size(), s.rows.size());
    for (size_t i = 0; i < 3; i++) {
        const auto columns = visible(s, i);
        for (size_t p = 0; p < columns.size(); p++) {
            const uint32_t c = columns[p];
            EXPECT_EQ(s.positions[c] + s.turns[c], static_cast<Pos>(p)) << "query " << i;
            const bool moved = i > 0 && p < 401;
            EXPECT_EQ(s.turns[c], moved ? -100 : 0) << "query " << i << " at " << p;
        }
    }
}

TEST_F(ScheduleTest, NeighbouringPagesAreOnePiece) {
    start(4096, 16);
    append({0}, 2000);
    const Schedule s = append({0});
    EXPECT_EQ(s.pieces.size(), 1);
}

TEST(LengthClassTest, IsNoShorterAndWastesLittle) {
    for (uint32_t n = 1; n < 20000; n++) {
        const uint32_t length = length_class(n);
        ASSERT_GE(length, n);
        ASSERT_LE(length - n, std::max(31u, n / 16)) << n;
        ASSERT_EQ(length % 32, 0);
        ASSERT_EQ(length_class(length), length);
    }
}

TEST(LengthClassTest, AreFew) {
    std::vector<uint32_t> classes;
    for (uint32_t n = 1; n <= 131072; n++)
        classes.push_back(length_class(n));
    EXPECT_TRUE(std::is_sorted(classes.begin(), classes.end()));
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
    EXPECT_LE(classes.size(), 32 + 16 * 8);
}

}  // namespace
}  // namespace cellar
