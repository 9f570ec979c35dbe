#include "engine/pool_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cells/cells.h"

namespace cellar {
namespace {

MemoryConfig config(uint32_t page_size, uint32_t max_ubatch, uint32_t n_rollback = 0,
                    uint32_t max_checkpoints = 0) {
    MemoryConfig config;
    config.n_cells = 1 << 20;
    config.page_size = page_size;
    config.max_ubatch = max_ubatch;
    config.n_rollback = n_rollback;
    config.max_checkpoints = max_checkpoints;
    return config;
}

TEST(PoolSizes, ASequenceRestsOnThePagesThatItsWindowTouches) {
    EXPECT_EQ(pages_at_rest(config(32, 1), 512, 0), 17u);     // 511 cells: 16 pages and a border
    EXPECT_EQ(pages_at_rest(config(32, 1, 2), 512, 0), 17u);  // 513 cells
    EXPECT_EQ(pages_at_rest(config(32, 1, 3), 512, 0), 18u);
    EXPECT_EQ(pages_at_rest(config(32, 1, 0, 3), 512, 0), 4 * 17u);
    EXPECT_EQ(pages_at_rest(config(32, 1, 0, 0), 512, 5), 22u);
    EXPECT_EQ(pages_at_rest(config(1, 1), 512, 0), 511u);
    EXPECT_EQ(pages_at_rest(config(4, 1), 1, 0), 1u);  // the newest token alone
}

TEST(PoolSizes, OneSequenceNeedsAWindowAUbatchAndTwoPages) {
    EXPECT_EQ(sliding_cells(config(32, 512), 512, 1, 0), 33u * 32);  // 1023 cells and a border
    EXPECT_EQ(sliding_cells(config(4, 1), 1, 1, 0), 2u * 4);
    for (const uint32_t page : {1u, 2u, 8u, 64u})
        for (const uint32_t window : {1u, 2u, 7u, 16u, 100u})
            for (const uint32_t n_rollback : {0u, 1u, 9u})
                for (const uint32_t ubatch : {1u, 5u, 32u, 77u})
                    EXPECT_LE(sliding_cells(config(page, ubatch, n_rollback), window, 1, 0),
                              window + n_rollback + ubatch + 2 * page);
}

TEST(PoolSizes, SeveralSequencesShareOneUbatch) {
    // 17 pages each at rest; of 512 new cells three open the first page of each sequence, and 32
    // one more.
    EXPECT_EQ(sliding_cells(config(32, 512), 512, 4, 0), (4 * 17u + 4 + 15) * 32);
    // Only two sequences of five can have the three cells that open a page.
    EXPECT_EQ(sliding_cells(config(32, 6), 512, 5, 0), (5 * 17u + 2) * 32);
}

// Every plan of sequences that grow in all ways finds room in such a pool, and for the worst of
// them there is no page to spare.
TEST(PoolSizes, NoUbatchFindsThePoolFullAndSomeFillIt) {
    constexpr uint32_t kPage = 4, kUbatch = 7, kSeqs = 2;
    for (const uint32_t window : {1u, 2u, 6u, 9u}) {
        const uint32_t n_cells = sliding_cells(config(kPage, kUbatch, 1), window, kSeqs, 0);
        bool filled = false;
        for (uint32_t lead = 0; lead < 2 * kPage && !filled; lead++) {
            for (uint32_t ahead = 0; ahead < kPage; ahead++) {
                CellsConfig cells_config;
                cells_config.group_cells = {n_cells};
                cells_config.page_size = kPage;
                cells_config.kinds = {GroupKind::sliding(window)};
                cells_config.n_rollback = 1;
                auto cells = Cells::create(cells_config);
                ASSERT_TRUE(cells);
                const auto decode = [&](uint32_t a, uint32_t b) {
                    Batch batch;
                    for (uint32_t i = 0; i < a; i++)
                        batch.add(0, SeqId{0}, kNextPos, false);
                    for (uint32_t i = 0; i < b; i++)
                        batch.add(0, SeqId{1}, kNextPos, false);
                    auto plan = cells->prepare(batch, {.max_ubatch = kUbatch});
                    ASSERT_TRUE(plan) << plan.error().message;
                    filled = filled || cells->pool(0).n_free() == 0;
                    for (size_t i = 0; i < plan->size(); i++)
                        ASSERT_TRUE(cells->commit(*plan, i));
                };
                decode(20 + lead, 20 + lead + ahead);
                for (uint32_t a = 0; a <= kUbatch; a++) {
                    decode(a, kUbatch - a);
                    decode(1, 1);
                }
            }
        }
        EXPECT_TRUE(filled) << window;
    }
}

TEST(PoolSizes, StatesAreThoseAtRestAndThoseOfAStep) {
    EXPECT_EQ(sequence_states(config(32, 1)), 2u);
    EXPECT_EQ(sequence_states(config(32, 1, 3, 2)), 10u);
}

TEST(PoolSizes, OnlyWhatLeavesByItselfIsSized) {
    MemoryConfig mixed = config(32, 512, 1, 1);
    mixed.kinds = {GroupKind::full(), GroupKind::sliding(64), GroupKind::recurrent()};
    mixed.n_states = 0;
    MemoryConfig sized = mixed;
    size_pools(sized, 3, 0);
    EXPECT_EQ(sized.group_cells, (std::vector<uint32_t>{0, sliding_cells(mixed, 64, 3, 0), 0}));
    EXPECT_EQ(sized.n_states, 3 * 5u);
    EXPECT_TRUE(has_small_pools(sized));
    EXPECT_EQ(texts_that_fit(sized, 3), 3u);
    EXPECT_EQ(texts_that_fit(sized, 0), 3u);  // states for no more

    sized = mixed;
    sized.n_states = 11;
    sized.keeps_windows = true;
    size_pools(sized, 3, 0);
    EXPECT_EQ(sized.n_states, 11u);
    EXPECT_FALSE(has_small_pools(sized));
    EXPECT_EQ(texts_that_fit(sized, 3), 2u);

    sized = mixed;
    size_pools(sized, 0, 0);
    EXPECT_TRUE(sized.group_cells.empty());
    EXPECT_EQ(texts_that_fit(config(32, 1), 0), SIZE_MAX);
}

TEST(PoolSizes, SizesBeyondAllNumbersAreTheGreatest) {
    constexpr uint32_t kMany = UINT32_MAX;
    EXPECT_EQ(sliding_cells(config(32, kMany, kMany, kMany), kMany, kMany, kMany), kMany - 31);
    MemoryConfig states = config(32, 1, kMany, kMany);
    states.kinds = {GroupKind::recurrent()};
    states.n_states = 0;
    size_pools(states, kMany, 0);
    EXPECT_EQ(states.n_states, kMany);
}

}  // namespace
}  // namespace cellar
