// Loads: staged beside what sequences see, then made visible at once or not at all.

#include "cells/loading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cells/audit.h"
#include "cells/cells.h"

namespace cellar {
namespace {

constexpr uint32_t kPage = 8;

Cells make_cells(std::vector<uint32_t> group_cells = {64}, uint32_t n_pos = 1,
                 uint32_t grow_step = 0) {
    CellsConfig config;
    config.group_cells = std::move(group_cells);
    config.page_size = kPage;
    config.n_pos = n_pos;
    config.grow_step = grow_step;
    return std::move(*Cells::create(config));
}

void append(Cells& cells, int seq, uint32_t n) {
    Batch batch(cells.n_pos());
    for (uint32_t i = 0; i < n; i++)
        batch.add(0, SeqId{seq});
    auto plan = cells.prepare(batch, {});
    ASSERT_TRUE(plan) << plan.error().message;
    for (size_t i = 0; i < plan->size(); i++)
        ASSERT_TRUE(cells.commit(*plan, i));
}

std::vector<Pos> positions(const Cells& cells, int seq, uint32_t group = 0) {
    std::vector<Pos> seen;
    for (const Span& span : cells.spans(SeqId{seq}, group))
        for (uint32_t i = 0; i < span.count; i++)
            seen.push_back(cells.pos(group, span, i));
    return seen;
}

std::vector<Pos> count_up(uint32_t n, Pos from = 0) {
    std::vector<Pos> list(n);
    std::iota(list.begin(), list.end(), from);
    return list;
}

LoadGroup group_of(std::vector<Pos> encoded, std::vector<std::vector<LoadRun>> runs) {
    LoadGroup group{std::move(encoded), {}};
    for (std::vector<LoadRun>& list : runs)
        group.tracks.push_back({std::move(list)});
    return group;
}

// One sequence that sees `n` cells at positions 0, 1, ...
LoadRequest simple(int seq, uint32_t n) {
    LoadRequest request;
    request.seqs = {SeqId{seq}};
    std::vector<LoadRun> runs;
    if (n > 0) runs.push_back({0, n, 0});
    request.groups.emplace_back(group_of(count_up(n), {runs}));
    return request;
}

void expect_sound(const Cells& cells) {
    const auto finding = audit(cells);
    EXPECT_FALSE(finding) << *finding;
}

TEST(LoadingTest, NothingIsVisibleBeforeTheCommit) {
    Cells cells = make_cells();
    append(cells, 1, 5);
    auto loading = Loading::begin(cells, simple(1, 20));
    ASSERT_TRUE(loading) << loading.error().message;
    EXPECT_EQ(positions(cells, 1), count_up(5));
    EXPECT_EQ(cells.seq_rm(SeqId{1}, 0, -1).error().code, Code::kBusy);
    EXPECT_EQ(Loading::begin(cells, simple(2, 1)).error().code, Code::kBusy);
    loading->commit();
    EXPECT_EQ(positions(cells, 1), count_up(20));
    EXPECT_EQ(cells.pool(0).n_free(), 8 - 3);
    expect_sound(cells);
}

TEST(LoadingTest, AnAbandonedLoadGivesItsPagesBack) {
    Cells cells = make_cells();
    append(cells, 1, 5);
    {
        auto loading = Loading::begin(cells, simple(1, 20));
        ASSERT_TRUE(loading);
        EXPECT_EQ(cells.pool(0).n_free(), 8 - 1 - 3);
    }
    EXPECT_EQ(cells.pool(0).n_free(), 8 - 1);
    EXPECT_EQ(positions(cells, 1), count_up(5));
    expect_sound(cells);
}

TEST(LoadingTest, RowsAreThoseOfPagesThatNobodySees) {
    Cells cells = make_cells();
    append(cells, 1, 9);
    append(cells, 2, 9);
    ASSERT_TRUE(cells.seq_rm(SeqId{1}, 0, -1));  // holes at pages 0 and 1
    auto loading = Loading::begin(cells, simple(3, 30));
    ASSERT_TRUE(loading);
    std::vector<bool> taken(64, false);
    uint32_t next = 5;
    for (const Loading::Rows& rows : loading->rows(0, 5, 22)) {
        EXPECT_EQ(rows.first, next);
        next += rows.count;
        for (uint32_t row = rows.row; row < rows.row + rows.count; row++) {
            EXPECT_FALSE(taken[row]);
            taken[row] = true;
        }
    }
    EXPECT_EQ(next, 27);
    for (const Span& span : cells.spans(SeqId{2}, 0))
        for (uint32_t i = 0; i < span.count; i++)
            EXPECT_FALSE(taken[value(span.page) * kPage + span.first + i]);
}

TEST(LoadingTest, SharedCellsAreSharedAgain) {
    Cells cells = make_cells();
    LoadRequest request;
    request.seqs = {SeqId{4}, SeqId{7}};
    request.groups.emplace_back(group_of(count_up(25), {{{0, 20, 0}}, {{0, 12, 0}, {20, 5, -8}}}));
    auto loading = Loading::begin(cells, std::move(request));
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    EXPECT_EQ(positions(cells, 4), count_up(20));
    EXPECT_EQ(positions(cells, 7), count_up(17));
    EXPECT_EQ(cells.pool(0).n_free(), 8 - 4);  // 20 cells, and 5 that begin a page
    EXPECT_EQ(cells.spans(SeqId{4}, 0)[0].page, cells.spans(SeqId{7}, 0)[0].page);
    expect_sound(cells);
    append(cells, 7, 9);
    append(cells, 4, 9);
    EXPECT_EQ(positions(cells, 7), count_up(26));
    EXPECT_EQ(positions(cells, 4), count_up(29));
    expect_sound(cells);
    ASSERT_TRUE(cells.seq_rm(kEverySeq, -1, -1));
    EXPECT_EQ(cells.pool(0).n_free(), 8);
}

TEST(LoadingTest, TakesPositionsWithGapsAndCellsSeenTwice) {
    Cells cells = make_cells();
    LoadRequest request;
    request.seqs = {SeqId{0}};
    request.groups.emplace_back(group_of({3, 4, 9, 20, 5}, {{{0, 2, 0}, {0, 4, 3}, {4, 1, 30}}}));
    auto loading = Loading::begin(cells, std::move(request));
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    EXPECT_EQ(positions(cells, 0), (std::vector<Pos>{3, 4, 6, 7, 12, 23, 35}));
    EXPECT_EQ(cells.n_cells(SeqId{0}, 0), 7);
    expect_sound(cells);
}

TEST(LoadingTest, FindsRunsThatLieOverEachOther) {
    Cells cells = make_cells();
    LoadRequest request;
    request.seqs = {SeqId{0}};
    request.groups.emplace_back(group_of(count_up(12), {{{0, 6, 0}, {6, 6, -4}}}));
    auto loading = Loading::begin(cells, std::move(request));
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    expect_sound(cells);
    EXPECT_EQ(cells.seq_pos_max(SeqId{0}), 7);
    ASSERT_TRUE(cells.seq_rm(SeqId{0}, 5, -1));
    EXPECT_EQ(cells.n_cells(SeqId{0}, 0), 5 + 3);
    expect_sound(cells);
}

TEST(LoadingTest, VectorPositionsKeepTheirComponents) {
    Cells cells = make_cells({64}, 3);
    LoadRequest request;
    request.seqs = {SeqId{0}};
    request.groups.emplace_back(group_of({5, 1, 2, 5, 3, 4, 6, 5, 6}, {{{0, 3, 0}}}));
    auto loading = Loading::begin(cells, std::move(request));
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    const Span span = cells.spans(SeqId{0}, 0)[0];
    EXPECT_EQ(cells.pool(0).component(span.page, span.first + 1u, 0), 5);
    EXPECT_EQ(cells.pool(0).component(span.page, span.first + 1u, 2), 4);
    EXPECT_EQ(cells.pool(0).component(span.page, span.first + 2u, 1), 5);
}

TEST(LoadingTest, NothingLoadedLeavesNoSequence) {
    Cells cells = make_cells();
    append(cells, 3, 5);
    auto loading = Loading::begin(cells, simple(3, 0));
    ASSERT_TRUE(loading);
    loading->commit();
    EXPECT_TRUE(cells.sequences().empty());
    expect_sound(cells);
}

TEST(LoadingTest, RefusesMoreThanIsFreeWithTheNumbers) {
    Cells cells = make_cells();
    append(cells, 1, 41);
    const auto refused = Loading::begin(cells, simple(1, 20));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 24);
    EXPECT_EQ(refused.error().room->free, 16);
    EXPECT_EQ(positions(cells, 1), count_up(41));
    EXPECT_TRUE(Loading::begin(cells, simple(1, 16)));
    expect_sound(cells);
}

TEST(LoadingTest, GrowsAPoolThatMay) {
    Cells cells = make_cells({64}, 1, 16);
    auto loading = Loading::begin(cells, simple(1, 50));
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    EXPECT_EQ(positions(cells, 1), count_up(50));
    expect_sound(cells);
}

TEST(LoadingTest, LeavesWhatOthersWerePromised) {
    Cells cells = make_cells();
    ASSERT_TRUE(cells.set_limits(SeqId{2}, {48, UINT32_MAX}));
    EXPECT_EQ(Loading::begin(cells, simple(1, 17)).error().code, Code::kNoRoom);
    auto own = Loading::begin(cells, simple(2, 60));
    ASSERT_TRUE(own) << own.error().message;
    own->commit();
    expect_sound(cells);
}

TEST(LoadingTest, KeepsToWhatASequenceMayHold) {
    Cells cells = make_cells();
    ASSERT_TRUE(cells.set_limits(SeqId{1}, {0, 10}));
    EXPECT_EQ(Loading::begin(cells, simple(1, 11)).error().code, Code::kNoRoom);
    EXPECT_TRUE(Loading::begin(cells, simple(1, 10)));
}

TEST(LoadingTest, GroupsThatAreNotLoadedAreRewoundToTheOthers) {
    Cells cells = make_cells({64, 64});
    append(cells, 0, 20);
    LoadRequest request;
    request.seqs = {SeqId{0}};
    request.groups.resize(2);
    request.groups[1] = group_of(count_up(4, 8), {{{0, 4, 0}}});
    auto loading = Loading::begin(cells, request);
    ASSERT_TRUE(loading) << loading.error().message;
    loading->commit();
    EXPECT_EQ(positions(cells, 0, 0), count_up(12));
    EXPECT_EQ(positions(cells, 0, 1), count_up(4, 8));
    expect_sound(cells);

    request.seqs = {SeqId{5}};  // which holds nothing in group 0
    const auto refused = Loading::begin(cells, request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kBadRange);
}

struct Senseless {
    const char* why;
    std::vector<Pos> encoded;
    std::vector<LoadRun> runs;
};

class SenselessLoadTest : public ::testing::TestWithParam<Senseless> {};

TEST_P(SenselessLoadTest, IsRefused) {
    Cells cells = make_cells();
    append(cells, 0, 3);
    LoadRequest request;
    request.seqs = {SeqId{0}};
    request.groups.emplace_back(group_of(GetParam().encoded, {GetParam().runs}));
    const auto refused = Loading::begin(cells, std::move(request));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kBadRange) << refused.error().message;
    EXPECT_EQ(positions(cells, 0), count_up(3));
    EXPECT_FALSE(cells.busy());
}

INSTANTIATE_TEST_SUITE_P(
    Requests, SenselessLoadTest,
    ::testing::Values(Senseless{"empty_run", {0, 1, 2}, {{0, 0, 0}}},
                      Senseless{"run_beyond_the_cells", {0, 1, 2}, {{1, 3, 0}}},
                      Senseless{"run_that_overflows", {0, 1, 2}, {{2, UINT32_MAX, 0}}},
                      Senseless{"falling_positions", {0, 5, 2}, {{0, 3, 0}}},
                      Senseless{"below_zero", {0, 1, 2}, {{0, 3, -1}}},
                      Senseless{"beyond_the_greatest", {0, 1, kMaxPos - 5}, {{0, 3, 5}}},
                      Senseless{"negative_position", {-1, 1, 2}, {{0, 3, 1}}},
                      Senseless{"no_position", {0, 1, kMaxPos}, {{0, 3, -1}}}),
    [](const auto& test) { return std::string(test.param.why); });

TEST(LoadingTest, RefusesSequencesThatAreNone) {
    Cells cells = make_cells();
    EXPECT_EQ(Loading::begin(cells, simple(-1, 3)).error().code, Code::kInvalidArgument);
    LoadRequest twice = simple(1, 3);
    twice.seqs = {SeqId{1}, SeqId{1}};
    twice.groups[0]->tracks.push_back({{{0, 3, 0}}});
    EXPECT_EQ(Loading::begin(cells, std::move(twice)).error().code, Code::kInvalidArgument);
    LoadRequest no_runs = simple(1, 3);
    no_runs.groups[0]->tracks.clear();
    EXPECT_EQ(Loading::begin(cells, std::move(no_runs)).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace cellar
