#include "memory/memory.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <string>

#include "testing/poison.h"
#include "testing/seen_hash.h"

namespace cellar {
namespace {

using testing::poison;
using testing::seen_hash;

MemoryConfig config_of(std::vector<LayerKv> layers, uint32_t n_cells = 128,
                       uint32_t page_size = 16) {
    MemoryConfig config;
    config.layers = std::move(layers);
    config.n_cells = n_cells;
    config.page_size = page_size;
    return config;
}

constexpr KvType kAll[] = {KvType::kF32,  KvType::kF16,  KvType::kBf16,
                           KvType::kQ8_0, KvType::kQ4_0, KvType::kQ4_1,
                           KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl};

// Two layers of one group. Appending writes bytes of its own into every cell, as a graph would.
class MemoryTest : public ::testing::Test {
protected:
    void start(KvType type = KvType::kF16) {
        MemoryConfig config = config_of({{0, 2, 32, 64}, {0, 1, 64, 32}});
        config.type_k = config.type_v = type;
        auto made = Memory::create(config);
        ASSERT_TRUE(made) << made.error().message;
        memory_ = std::move(*made);
    }

    Result<Plan> prepare(int seq, uint32_t n, uint32_t max_ubatch = 512) {
        Batch batch;
        for (uint32_t i = 0; i < n; i++)
            batch.add(0, SeqId{seq});
        SplitOptions options;
        options.max_ubatch = max_ubatch;
        return memory_->prepare(batch, options);
    }

    void write(const UbatchPlan& ubatch) {
        for (const uint32_t cell : ubatch.groups[0].cells) {
            for (uint32_t layer = 0; layer < 2; layer++) {
                write_row(memory_->k(layer), cell);
                write_row(memory_->v(layer), cell);
            }
        }
    }

    void append(int seq, uint32_t n) {
        poison(*memory_);
        auto plan = prepare(seq, n, 7);
        ASSERT_TRUE(plan) << plan.error().message;
        for (size_t i = 0; i < plan->size(); i++) {
            ASSERT_TRUE(memory_->apply_moves(*plan, i));
            write(plan->ubatch(i));
            ASSERT_TRUE(memory_->commit(*plan, i));
        }
    }

    void fork(int from, int to) { ASSERT_TRUE(memory_->seq_cp(SeqId{from}, SeqId{to}, -1, -1)); }

    uint64_t hash(int seq) const { return seen_hash(*memory_, SeqId{seq}); }

    std::unique_ptr<Memory> memory_;

private:
    void write_row(ggml_tensor* pool, uint32_t cell) {
        std::vector<uint8_t> bytes(pool->nb[1]);
        for (uint8_t& byte : bytes)
            byte = static_cast<uint8_t>(++written_ * 2654435761u >> 24);
        ggml_backend_tensor_set(pool, bytes.data(), cell * bytes.size(), bytes.size());
    }

    uint32_t written_ = 0;
};

TEST_F(MemoryTest, RoundsCellsUpToWholePages) {
    auto memory = Memory::create(config_of({{0, 1, 32, 32}}, 100, 32));
    ASSERT_TRUE(memory);
    EXPECT_EQ((*memory)->config().n_cells, 128);
    EXPECT_EQ((*memory)->k(0)->ne[1], 129);
    EXPECT_EQ((*memory)->cells().pool(0).n_pages(), 4);
}

TEST_F(MemoryTest, FindsEachLayersTensorsInItsGroup) {
    auto memory =
        Memory::create(config_of({{1, 1, 32, 64}, {0, 2, 32, 32}, {1, 3, 32, 32}, {0, 4, 32, 32}}));
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_EQ((*memory)->cells().n_groups(), 2);
    const int64_t widths[] = {32, 64, 96, 128};
    for (uint32_t layer = 0; layer < 4; layer++)
        EXPECT_EQ((*memory)->k(layer)->ne[0], widths[layer]);
    EXPECT_EQ((*memory)->v(0)->ne[0], 64);
}

TEST_F(MemoryTest, CountsTheBytesOfAllGroups) {
    auto one = Memory::create(config_of({{0, 1, 32, 32}}));
    auto two = Memory::create(config_of({{0, 1, 32, 32}, {1, 1, 32, 32}}));
    ASSERT_TRUE(one && two);
    EXPECT_GE((*one)->bytes(), 129 * 32 * 2 * 2);
    EXPECT_EQ((*two)->bytes(), 2 * (*one)->bytes());
}

struct Refused {
    const char* why;
    MemoryConfig config;
    Code code;
};

class RefusedMemoryTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedMemoryTest, GivesItsCode) {
    const auto memory = Memory::create(GetParam().config);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, GetParam().code) << memory.error().message;
}

MemoryConfig with_positions(uint32_t n_pos) {
    MemoryConfig config = config_of({{0, 1, 32, 32}});
    config.n_pos = n_pos;
    return config;
}

MemoryConfig with_q8(uint32_t head_dim) {
    MemoryConfig config = config_of({{0, 1, head_dim, head_dim}});
    config.type_k = KvType::kQ8_0;
    return config;
}

MemoryConfig with_budget(uint64_t bytes, uint32_t n_cells) {
    MemoryConfig config = config_of({{0, 1, 32, 32}}, n_cells);
    config.budget_bytes = bytes;
    return config;
}

MemoryConfig with_threshold(double threshold) {
    MemoryConfig config = config_of({{0, 1, 32, 32}});
    config.defrag_threshold = threshold;
    return config;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RefusedMemoryTest,
    ::testing::Values(
        Refused{"no_layers", config_of({}), Code::kInvalidArgument},
        Refused{"a_group_without_layers", config_of({{0, 1, 32, 32}, {2, 1, 32, 32}}),
                Code::kInvalidArgument},
        Refused{"a_group_beyond_any", config_of({{UINT32_MAX, 1, 32, 32}}), Code::kInvalidArgument},
        Refused{"no_cells", config_of({{0, 1, 32, 32}}, 0), Code::kInvalidArgument},
        Refused{"more_cells_than_rows", config_of({{0, 1, 32, 32}}, UINT32_MAX),
                Code::kInvalidArgument},
        Refused{"pages_of_no_cell", config_of({{0, 1, 32, 32}}, 64, 0), Code::kInvalidArgument},
        Refused{"pages_of_24", config_of({{0, 1, 32, 32}}, 64, 24), Code::kInvalidArgument},
        Refused{"pages_of_512", config_of({{0, 1, 32, 32}}, 64, 512), Code::kInvalidArgument},
        Refused{"positions_of_nothing", with_positions(0), Code::kInvalidArgument},
        Refused{"positions_of_five", with_positions(5), Code::kInvalidArgument},
        Refused{"heads_without_width", config_of({{0, 1, 0, 32}}), Code::kInvalidArgument},
        Refused{"two_budgets", with_budget(1000, 64), Code::kInvalidArgument},
        Refused{"a_budget_beyond_any", with_budget(UINT64_MAX, 0), Code::kInvalidArgument},
        Refused{"a_threshold_above_all", with_threshold(1.5), Code::kInvalidArgument},
        Refused{"half_a_block_a_head", with_q8(48), Code::kUnsupported}),
    [](const auto& test) { return std::string(test.param.why); });

class MemoryTypeTest : public MemoryTest, public ::testing::WithParamInterface<KvType> {};

TEST_P(MemoryTypeTest, ForksThatDivergeKeepTheirBytes) {
    start(GetParam());
    append(0, 21);  // a page and a part
    fork(0, 1);
    const uint64_t shared = hash(0);
    EXPECT_EQ(hash(1), shared);

    append(0, 1);  // in place
    EXPECT_EQ(hash(1), shared);
    const uint64_t first = hash(0);
    append(1, 1);  // behind a copy of the part
    EXPECT_EQ(hash(0), first);
    EXPECT_NE(hash(1), first);

    ASSERT_TRUE(memory_->seq_rm(SeqId{1}, 21, -1));
    EXPECT_EQ(hash(1), shared);
}

INSTANTIATE_TEST_SUITE_P(Types, MemoryTypeTest, ::testing::ValuesIn(kAll),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_F(MemoryTest, ClearForgetsSequencesAndLeavesTheBytes) {
    start();
    append(0, 5);
    const uint32_t cell = value(memory_->cells().spans(SeqId{0}, 0)[0].page) * 16;
    std::vector<uint8_t> written(memory_->k(0)->nb[1]), kept(written.size());
    ggml_backend_tensor_get(memory_->k(0), written.data(), cell * written.size(), written.size());
    ASSERT_TRUE(memory_->clear(false));
    EXPECT_EQ(memory_->seq_pos_max(SeqId{0}), -1);
    ggml_backend_tensor_get(memory_->k(0), kept.data(), cell * kept.size(), kept.size());
    EXPECT_EQ(kept, written);
}

TEST_F(MemoryTest, ClearingDataZeroesEveryCell) {
    start();
    append(0, 5);
    ASSERT_TRUE(memory_->clear(true));
    for (ggml_tensor* tensor : {memory_->k(0), memory_->v(0), memory_->k(1), memory_->v(1)}) {
        std::vector<uint8_t> bytes(ggml_nbytes(tensor));
        ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
        EXPECT_EQ(bytes, std::vector<uint8_t>(bytes.size(), 0));
    }
}

TEST_F(MemoryTest, NothingIsClearedWhileAPlanIsOpen) {
    start();
    append(0, 5);
    const uint64_t before = hash(0);
    auto plan = prepare(0, 1);
    ASSERT_TRUE(plan);
    const auto cleared = memory_->clear(true);
    ASSERT_FALSE(cleared);
    EXPECT_EQ(cleared.error().code, Code::kBusy);
    EXPECT_EQ(hash(0), before);
}

TEST_F(MemoryTest, MovesAreAppliedForTheNextUbatchOfAnOpenPlanOnly) {
    start();
    auto plan = prepare(0, 4, 2);
    ASSERT_TRUE(plan);
    EXPECT_EQ(memory_->apply_moves(*plan, 1).error().code, Code::kBadRange);
    EXPECT_EQ(memory_->apply_moves(*plan, 2).error().code, Code::kBadRange);
    EXPECT_TRUE(memory_->apply_moves(*plan, 0));
    ASSERT_TRUE(memory_->commit(*plan, 0));
    EXPECT_EQ(memory_->apply_moves(*plan, 0).error().code, Code::kBadRange);
    EXPECT_TRUE(memory_->apply_moves(*plan, 1));
    plan->cancel();
    EXPECT_EQ(memory_->apply_moves(*plan, 1).error().code, Code::kStale);
}

TEST_F(MemoryTest, ACancelledPlanChangesNothingThatIsSeen) {
    start();
    append(0, 21);
    fork(0, 1);
    append(0, 3);
    const uint64_t first = hash(0), second = hash(1);
    {
        auto plan = prepare(1, 3);
        ASSERT_TRUE(plan);
        ASSERT_FALSE(plan->ubatch(0).groups[0].copies.empty());
        ASSERT_TRUE(memory_->apply_moves(*plan, 0));
        write(plan->ubatch(0));
    }
    EXPECT_EQ(hash(0), first);
    EXPECT_EQ(hash(1), second);
}

TEST_F(MemoryTest, PoisonReachesNeitherSeenCellsNorTheZeroRow) {
    start();
    append(0, 21);
    const uint64_t before = hash(0);
    poison(*memory_);
    EXPECT_EQ(hash(0), before);
    std::vector<uint8_t> row(memory_->k(0)->nb[1]);
    ggml_backend_tensor_get(memory_->k(0), row.data(), 128 * row.size(), row.size());
    EXPECT_EQ(row, std::vector<uint8_t>(row.size(), 0));
    ggml_backend_tensor_get(memory_->k(0), row.data(), 127 * row.size(), row.size());
    EXPECT_EQ(row, std::vector<uint8_t>(row.size(), 0xFF));
}

}  // namespace
}  // namespace cellar
