#include "attention/cascade.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace cellar {
namespace {

// One group of cells; batches get their cascade and are committed, nothing is computed.
class CascadeTest : public ::testing::Test {
protected:
    void start(uint32_t n_cells, uint32_t page_size = 32, uint32_t window = 0) {
        CellsConfig config;
        config.group_cells = {n_cells};
        config.page_size = page_size;
        config.kinds = {window > 0 ? GroupKind::sliding(window) : GroupKind::full()};
        auto made = Cells::create(config);
        ASSERT_TRUE(made) << made.error().message;
        cells_.emplace(std::move(*made));
    }

    // Appends `n` items to each sequence; all of it is one ubatch.
    Cascade append(const std::vector<int>& seqs, uint32_t n = 1, bool share = true) {
        Batch batch;
        for (const int seq : seqs) {
            for (uint32_t i = 0; i < n; i++)
                batch.add(0, SeqId{seq});
        }
        auto plan = cells_->prepare(batch, {.max_ubatch = 4096});
        EXPECT_TRUE(plan) << plan.error().message;
        Cascade cascade = make_cascade(*cells_, plan->ubatch(0), 0, share);
        EXPECT_TRUE(cells_->commit(*plan, 0));
        check(cascade);
        return cascade;
    }

    void fork(int from, int to) { EXPECT_TRUE(cells_->seq_cp(SeqId{from}, SeqId{to}, -1, -1)); }

    // What holds for every cascade: an item's parts are its pairs with segments, and together they
    // count the cells that are attended to.
    static void check(const Cascade& cascade) {
        uint64_t seen = 0;
        size_t n_parts = 0;
        for (uint32_t item = 0; item < cascade.n_tokens; item++) {
            for (const Cascade::Part& part : cascade.parts_of(item)) {
                const Cascade::Segment& segment = cascade.segments.at(part.segment);
                const TileQuery& query = cascade.queries_of(segment)[part.query];
                EXPECT_LT(query.begin, query.end);
                EXPECT_LE(query.end, segment.n_columns);
                const uint32_t n = cascade.n_tokens;
                EXPECT_EQ(query.row < n ? query.row : cascade.turned.at(query.row - n).item, item);
                seen += query.end - query.begin;
                n_parts++;
            }
        }
        EXPECT_EQ(seen, cascade.attended_cells);
        EXPECT_EQ(n_parts, cascade.queries.size());
    }

    // Columns that the kernel loads: what is shared counts once.
    static uint64_t columns(const Cascade& cascade) {
        uint64_t n = 0;
        for (const Cascade::Segment& segment : cascade.segments)
            n += segment.n_columns;
        return n;
    }

    std::optional<Cells> cells_;
};

TEST_F(CascadeTest, ASequenceAloneIsOneSegment) {
    start(1024);
    append({0}, 100);
    const Cascade cascade = append({0}, 5);
    ASSERT_EQ(cascade.segments.size(), 1);
    EXPECT_EQ(cascade.segments[0].n_columns, 105);
    EXPECT_EQ(cascade.attended_cells, 101 + 102 + 103 + 104 + 105);
    EXPECT_EQ(cascade.read_cells, 105);
}

TEST_F(CascadeTest, ASharedPromptIsReadOnceForAllOfItsSequences) {
    start(8192);
    append({0}, 1024);
    for (int seq = 1; seq < 32; seq++)
        fork(0, seq);
    std::vector<int> all(32);
    for (int seq = 0; seq < 32; seq++)
        all[static_cast<size_t>(seq)] = seq;
    append(all, 40);
    const Cascade cascade = append(all);
    ASSERT_EQ(cascade.segments.size(), 33);
    EXPECT_EQ(cascade.segments[0].n_queries, 32);
    EXPECT_EQ(cascade.segments[0].n_columns, 1024);
    EXPECT_EQ(cascade.attended_cells, 32 * 1065);
    EXPECT_EQ(cascade.read_cells, 1024 + 32 * 41);
    EXPECT_EQ(columns(cascade), cascade.read_cells);
}

TEST_F(CascadeTest, WithoutSharingEachSequenceReadsAllOfItsCells) {
    start(4096);
    append({0}, 1024);
    fork(0, 1);
    append({0, 1}, 40);
    const Cascade cascade = append({0, 1}, 1, false);
    EXPECT_EQ(cascade.segments.size(), 2);
    EXPECT_EQ(columns(cascade), 2 * 1065);
    EXPECT_EQ(cascade.attended_cells, 2 * 1065);
    EXPECT_EQ(cascade.read_cells, 1024 + 2 * 41);
}

TEST_F(CascadeTest, EveryBranchOfATreeIsALevel) {
    start(4096);
    append({0}, 320);
    fork(0, 2);
    append({0}, 160);
    append({2}, 96);
    fork(0, 1);
    fork(2, 3);
    append({0, 1, 2, 3}, 64);
    const Cascade cascade = append({0, 1, 2, 3});
    // The trunk, two branches, and four leaves.
    EXPECT_EQ(cascade.segments.size(), 7);
    EXPECT_EQ(columns(cascade), 320 + 160 + 96 + 4 * 65);
    EXPECT_EQ(columns(cascade), cascade.read_cells);
    EXPECT_EQ(cascade.parts_of(0).size(), 3);
}

// A segment for a shared beginning of few cells would cost more than reading it twice.
TEST_F(CascadeTest, WhatIsSharedButShortIsReadByEach) {
    start(1024, 2);
    append({0}, 10);
    fork(0, 1);
    append({0, 1}, 100);
    const Cascade cascade = append({0, 1});
    EXPECT_EQ(cascade.segments.size(), 2);
    EXPECT_EQ(columns(cascade), 2 * 111);
    EXPECT_EQ(cascade.read_cells, 10 + 2 * 101);
}

// Keys stay as they were encoded, so those that moved and those that did not read them together.
TEST_F(CascadeTest, CellsThatMovedForOneSequenceAreStillReadOnce) {
    start(1024);
    append({0}, 200);
    fork(0, 1);
    EXPECT_TRUE(cells_->seq_rm(SeqId{1}, 0, 64));
    EXPECT_TRUE(cells_->seq_add(SeqId{1}, 64, -1, -64));
    const Cascade cascade = append({0, 1});
    EXPECT_EQ(columns(cascade), 64 + 136 + 2);
    EXPECT_EQ(cascade.read_cells, 64 + 136 + 2);
    ASSERT_EQ(cascade.turned.size(), 1);
    EXPECT_EQ(cascade.turned[0].item, 1);
    EXPECT_EQ(cascade.turned[0].delta, -64);
}

TEST_F(CascadeTest, AWindowLeavesOutWhatNoQuerySees) {
    start(1024, 32, 50);
    append({0}, 300);
    const Cascade cascade = append({0}, 4);
    EXPECT_EQ(cascade.attended_cells, 4 * 50);
    EXPECT_EQ(cascade.read_cells, 53);
    EXPECT_EQ(columns(cascade), 53);
}

// R11: what others hold does not change what a sequence attends to or reads.
TEST_F(CascadeTest, R11CostDoesNotDependOnOthers) {
    start(200000);
    const Cascade empty = append({0}, 1000);
    EXPECT_TRUE(cells_->seq_rm(SeqId{0}, -1, -1));
    for (int i = 0; i < 25; i++)
        append({7}, 4000);
    EXPECT_TRUE(cells_->seq_rm(SeqId{7}, -1, -1));
    const Cascade after = append({0}, 1000);
    EXPECT_TRUE(cells_->seq_rm(SeqId{0}, -1, -1));
    for (int i = 0; i < 25; i++)
        append({7}, 4000);
    const Cascade beside = append({0}, 1000);
    for (const Cascade* cascade : {&empty, &after, &beside}) {
        EXPECT_EQ(cascade->attended_cells, 1000 * 1001 / 2);
        EXPECT_EQ(cascade->read_cells, 1000);
    }
}

}  // namespace
}  // namespace cellar
