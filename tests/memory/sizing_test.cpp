// How a memory is sized: budgets, growth, limits, compaction by threshold.

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <memory>

#include "cells/audit.h"
#include "memory/memory.h"
#include "testing/poison.h"
#include "testing/seen_hash.h"

namespace cellar {
namespace {

using testing::poison;
using testing::seen_hash;

// Two layers in f16: a cell is 64 + 128 keys and values and 64 + 32, 576 bytes; a page of 16 is
// 9,216.
constexpr uint64_t kPageBytes = 9216;

MemoryConfig two_layers() {
    MemoryConfig config;
    config.layers = {{0, 2, 32, 64}, {0, 1, 64, 32}};
    config.page_size = 16;
    return config;
}

class SizingTest : public ::testing::Test {
protected:
    void start(const MemoryConfig& config) {
        auto made = Memory::create(config);
        ASSERT_TRUE(made) << made.error().message;
        memory_ = std::move(*made);
    }

    Result<Plan> prepare(int seq, uint32_t n) {
        Batch batch;
        for (uint32_t i = 0; i < n; i++)
            batch.add(0, SeqId{seq});
        return memory_->prepare(batch, {});
    }

    // Each cell gets bytes of its own.
    void append(int seq, uint32_t n) {
        auto plan = prepare(seq, n);
        ASSERT_TRUE(plan) << plan.error().message;
        ASSERT_TRUE(memory_->apply_moves(*plan, 0));
        for (const uint32_t cell : plan->ubatch(0).groups[0].cells) {
            for (uint32_t layer = 0; layer < 2; layer++) {
                for (ggml_tensor* pool : {memory_->k(layer), memory_->v(layer)}) {
                    const std::vector<uint8_t> row(pool->nb[1], ++written_);
                    ggml_backend_tensor_set(pool, row.data(), cell * row.size(), row.size());
                }
            }
        }
        ASSERT_TRUE(memory_->commit(*plan, 0));
    }

    uint32_t pages() const { return memory_->cells().pool(0).n_pages(); }
    uint32_t free_pages() const { return memory_->cells().pool(0).n_free(); }

    std::unique_ptr<Memory> memory_;

private:
    uint8_t written_ = 0;
};

TEST_F(SizingTest, ABudgetOfBytesRoundsUpToWholePages) {
    const std::pair<uint64_t, uint32_t> expected[] = {
        {1, 16}, {kPageBytes, 16}, {kPageBytes + 1, 32}, {10 * kPageBytes - 1, 160}};
    for (const auto& [bytes, cells] : expected) {
        MemoryConfig config = two_layers();
        config.budget_bytes = bytes;
        start(config);
        EXPECT_EQ(memory_->config().n_cells, cells);
        EXPECT_EQ(pages(), cells / 16);
        EXPECT_EQ(memory_->k(0)->ne[1], cells + 1);
        EXPECT_GE(memory_->bytes(), bytes);
    }
}

TEST_F(SizingTest, ABudgetOfBytesIsSharedByAllGroups) {
    MemoryConfig config = two_layers();
    config.layers[1].group = 1;
    config.budget_bytes = 2 * kPageBytes;
    start(config);
    EXPECT_EQ(memory_->config().n_cells, 32u);
    EXPECT_EQ(memory_->cells().pool(1).n_pages(), 2u);
}

// What a sliding group does not take goes to the full ones.
TEST_F(SizingTest, ABudgetOfBytesCountsSlidingPoolsAtTheirSize) {
    MemoryConfig config = two_layers();
    config.layers[1].group = 1;
    config.kinds = {GroupKind::full(), GroupKind::sliding(16)};
    config.group_cells = {0, 40};  // 3 pages
    // A page of the full group is two thirds of kPageBytes.
    const std::pair<uint64_t, std::pair<uint32_t, uint32_t>> expected[] = {
        {2 * kPageBytes, {2, 2}},
        {3 * kPageBytes, {3, 3}},
        {4 * kPageBytes, {5, 3}},
        {10 * kPageBytes, {14, 3}}};
    for (const auto& [bytes, pages] : expected) {
        config.budget_bytes = bytes;
        start(config);
        EXPECT_EQ(memory_->config().n_cells, 16 * pages.first);
        EXPECT_EQ(memory_->cells().pool(0).n_pages(), pages.first);
        EXPECT_EQ(memory_->cells().pool(1).n_pages(), pages.second);
    }
    config.keeps_windows = true;
    start(config);
    EXPECT_EQ(memory_->cells().pool(1).n_pages(), 10u);
    config.keeps_windows = false;
    config.layers[0].group = 0;
    config.kinds = {GroupKind::sliding(16), GroupKind::sliding(16)};
    config.group_cells = {16, 48};
    start(config);
    EXPECT_EQ(memory_->config().n_cells, 160u);
    EXPECT_EQ(memory_->cells().pool(0).n_pages(), 1u);
}

TEST_F(SizingTest, GrowsInStepsUpToTheBudget) {
    MemoryConfig config = two_layers();
    config.budget_bytes = 5 * kPageBytes;
    config.grow_step = 32;
    start(config);
    EXPECT_EQ(pages(), 2u);
    append(0, 32);
    const uint64_t before = seen_hash(*memory_, SeqId{0});
    const void* keys = memory_->k(0)->data;
    EXPECT_EQ(pages(), 2u);
    append(1, 1);
    EXPECT_EQ(pages(), 4u);
    append(1, 32);
    EXPECT_EQ(pages(), 5u);  // the last step is what the budget leaves
    EXPECT_EQ(memory_->k(0)->data, keys);
    poison(*memory_);
    EXPECT_EQ(seen_hash(*memory_, SeqId{0}), before);

    append(1, 15);
    const auto refused = prepare(0, 17);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 32u);
    EXPECT_EQ(refused.error().room->free, 0u);
}

TEST_F(SizingTest, LimitsTellPrivateFromSharedRoom) {
    MemoryConfig config = two_layers();
    config.n_cells = 96;
    start(config);
    ASSERT_TRUE(memory_->set_limits(SeqId{0}, {32, 48}));
    EXPECT_EQ(memory_->cells().reserved_pages(0), 2u);
    const auto refused = prepare(1, 65);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().room->needed, 80u);
    EXPECT_EQ(refused.error().room->free, 64u);
    append(1, 48);
    append(0, 48);  // two pages of its own, one that all share
    EXPECT_EQ(prepare(0, 1).error().code, Code::kNoRoom);
    EXPECT_EQ(free_pages(), 0u);
}

TEST_F(SizingTest, ReservingCommitsAndChangesNothing) {
    MemoryConfig config = two_layers();
    config.n_cells = 64;
    start(config);
    append(0, 20);
    const uint64_t before = seen_hash(*memory_, SeqId{0});
    ASSERT_TRUE(memory_->reserve());
    EXPECT_EQ(seen_hash(*memory_, SeqId{0}), before);
}

// Six sequences of two pages; of each first page 4 of 16 cells stay.
TEST_F(SizingTest, AboveTheThresholdPreparingCompactsInSteps) {
    MemoryConfig config = two_layers();
    config.n_cells = 256;
    config.defrag_threshold = 0.7;
    config.defrag_cells = 8;
    start(config);
    for (int s = 0; s < 6; s++)
        append(s, 32);
    for (int s = 0; s < 6; s++)
        ASSERT_TRUE(memory_->seq_rm(SeqId{s}, 4, 16));
    // Of twelve pages 72 of 192 cells are unused: less than 0.7.
    ASSERT_TRUE(prepare(9, 1));
    EXPECT_EQ(free_pages(), 4u);
    // The second pages gone but for two cells, which can be appended to: six pages count, 72 of 96.
    for (int s = 0; s < 6; s++)
        ASSERT_TRUE(memory_->seq_rm(SeqId{s}, 18, -1));
    std::vector<uint64_t> hashes;
    for (int s = 0; s < 6; s++)
        hashes.push_back(seen_hash(*memory_, SeqId{s}));
    ASSERT_TRUE(prepare(9, 1));  // two pages into one
    EXPECT_EQ(free_pages(), 5u);
    ASSERT_TRUE(prepare(9, 1));  // of five, 56 of 80 are unused: not more than 0.7
    EXPECT_EQ(free_pages(), 5u);
    poison(*memory_);
    for (int s = 0; s < 6; s++)
        EXPECT_EQ(seen_hash(*memory_, SeqId{s}), hashes[static_cast<size_t>(s)]);
    EXPECT_EQ(audit(memory_->cells()), std::nullopt);
}

}  // namespace
}  // namespace cellar
