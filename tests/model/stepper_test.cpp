#include "model/stepper.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "gguf/gguf_file.h"
#include "model/attention_parts.h"
#include "testing/far_memory.h"
#include "testing/gguf_bytes.h"

namespace cellar {
namespace {

using testing::far_memory;

// Four layers of one group, 128 tokens.
std::unique_ptr<Model> open_tiny_llama() {
    auto file = GgufFile::open(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    EXPECT_TRUE(file) << file.error().message;
    auto model = load_model(*file, {});
    EXPECT_TRUE(model) << model.error().message;
    return std::move(model).value();
}

class StepperTest : public ::testing::Test {
protected:
    static constexpr uint32_t kCells = 256;
    static constexpr uint32_t kMaxUbatch = 32;

    void SetUp() override {
        make_memory({nullptr});
        auto stepper = create({});
        ASSERT_TRUE(stepper) << stepper.error().message;
        stepper_ = std::move(*stepper);
    }

    // Layers take turns with these.
    void make_memory(const std::vector<ggml_backend_buffer_type*>& buffer_types) {
        MemoryConfig config;
        config.layers = model_->info().layers;
        for (size_t i = 0; i < config.layers.size(); i++)
            config.layers[i].buffer_type = buffer_types[i % buffer_types.size()];
        config.n_cells = kCells;
        auto memory = Memory::create(config);
        ASSERT_TRUE(memory) << memory.error().message;
        stepper_.reset();
        memory_ = std::move(*memory);
    }

    // Logits of a batch in a fresh memory of these types.
    std::vector<float> logits_in(const std::vector<ggml_backend_buffer_type*>& buffer_types,
                                 const Batch& batch) {
        make_memory(buffer_types);
        auto stepper = create({});
        if (!stepper) {
            ADD_FAILURE() << stepper.error().message;
            return {};
        }
        stepper_ = std::move(*stepper);
        const Plan plan = prepare(batch);
        auto logits = stepper_->compute(batch, plan, 0);
        if (!logits) {
            ADD_FAILURE() << logits.error().message;
            return {};
        }
        return {logits->values.begin(), logits->values.end()};
    }

    Result<std::unique_ptr<Stepper>> create(StepperOptions options) {
        options.max_ubatch = kMaxUbatch;
        return Stepper::create(*model_, *memory_, options);
    }

    Plan prepare(const Batch& batch) {
        SplitOptions options;
        options.max_ubatch = kMaxUbatch;
        auto plan = memory_->prepare(batch, options);
        EXPECT_TRUE(plan) << plan.error().message;
        return std::move(plan).value();
    }

    // Computes and commits every ubatch; counts the rows of logits.
    size_t run(const Batch& batch) {
        Plan plan = prepare(batch);
        size_t n_rows = 0;
        for (size_t i = 0; i < plan.size(); i++) {
            EXPECT_TRUE(memory_->apply_moves(plan, i));
            auto logits = stepper_->compute(batch, plan, i);
            if (!logits) {
                ADD_FAILURE() << logits.error().message;
                break;
            }
            n_rows += logits->items.size();
            EXPECT_EQ(logits->values.size(), logits->items.size() * 128);
            EXPECT_TRUE(memory_->commit(plan, i));
        }
        return n_rows;
    }

    static Batch tokens(uint32_t n, int seq = 0, bool output = false) {
        Batch batch;
        for (uint32_t i = 0; i < n; i++) {
            batch.add(static_cast<Token>(i % 128), SeqId{seq}, kNextPos, output);
        }
        return batch;
    }

    std::unique_ptr<Model> model_ = open_tiny_llama();
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Stepper> stepper_;
};

TEST_F(StepperTest, DecodeStepsReuseAGraph) {
    run(tokens(20));
    const uint64_t before = stepper_->stats().graphs_built;
    for (int i = 0; i < 64; i++) {
        run(tokens(1, 0, true));
    }
    EXPECT_EQ(stepper_->stats().steps, 65U);
    // One for each length class that 20 to 84 cells pass through.
    EXPECT_LE(stepper_->stats().graphs_built - before, 3U);
}

TEST_F(StepperTest, AlternatingShapesKeepTheirGraphs) {
    for (int round = 0; round < 10; round++) {
        run(tokens(8));
        run(tokens(1, 0, true));
        ASSERT_TRUE(memory_->seq_rm(SeqId{0}, -1, -1));
    }
    EXPECT_EQ(stepper_->stats().graphs_built, 2U);
}

TEST_F(StepperTest, BuffersAreReservedForTheLargestStep) {
    const uint64_t reserved = stepper_->compute_bytes();
    EXPECT_GT(reserved, 0U);
    run(tokens(kCells - 1));
    run(tokens(1, 0, true));
    ASSERT_TRUE(memory_->clear(false));
    run(tokens(kMaxUbatch, 0, true));
    EXPECT_EQ(stepper_->compute_bytes(), reserved);
}

TEST_F(StepperTest, AttendedCellsAreThoseThatQueriesSee) {
    run(tokens(40));
    EXPECT_EQ(stepper_->stats().attended_cells, 40U * 41 / 2);
    ASSERT_TRUE(memory_->seq_cp(SeqId{0}, SeqId{1}, -1, -1));
    Batch both;
    both.add(1, SeqId{0}, kNextPos, true);
    both.add(2, SeqId{1}, kNextPos, true);
    run(both);
    EXPECT_EQ(stepper_->stats().attended_cells, 40U * 41 / 2 + 2 * 41);
}

TEST_F(StepperTest, RowsAreThoseOfItemsThatWantThem) {
    EXPECT_EQ(run(tokens(40)), 0U);
    EXPECT_EQ(run(tokens(40, 1, true)), 40U);
    Batch batch = tokens(3, 2);
    batch.add(9, SeqId{2}, kNextPos, true);
    Plan plan = prepare(batch);
    const auto logits = stepper_->compute(batch, plan, 0);
    ASSERT_TRUE(logits);
    EXPECT_EQ(std::vector<uint32_t>(logits->items.begin(), logits->items.end()),
              std::vector<uint32_t>{3});
}

TEST_F(StepperTest, OnlyTheNextUbatchOfAnOpenPlanIsComputed) {
    const Batch batch = tokens(2 * kMaxUbatch);
    Plan plan = prepare(batch);
    EXPECT_EQ(stepper_->compute(batch, plan, 1).error().code, Code::kStale);
    ASSERT_TRUE(stepper_->compute(batch, plan, 0));
    ASSERT_TRUE(memory_->commit(plan, 0));
    EXPECT_EQ(stepper_->compute(batch, plan, 0).error().code, Code::kStale);
    EXPECT_EQ(stepper_->compute(tokens(5), plan, 1).error().code, Code::kStale);
    plan.cancel();
    EXPECT_EQ(stepper_->compute(batch, plan, 1).error().code, Code::kStale);
}

TEST_F(StepperTest, TokenOutsideTheVocabularyIsRefused) {
    for (const Token bad : {-1, 128, INT32_MAX}) {
        Batch batch;
        batch.add(bad, SeqId{0});
        EXPECT_EQ(stepper_->check(batch).error().code, Code::kInvalidArgument);
        Plan plan = prepare(batch);
        EXPECT_EQ(stepper_->compute(batch, plan, 0).error().code, Code::kInvalidArgument);
    }
    EXPECT_EQ(stepper_->stats().steps, 0U);
}

TEST_F(StepperTest, CountsOutOfRangeAreRefused) {
    EXPECT_EQ(create({.n_threads = 0}).error().code, Code::kInvalidArgument);
    EXPECT_EQ(create({.n_threads = 1 << 20}).error().code, Code::kInvalidArgument);
    StepperOptions options;
    options.max_ubatch = 0;
    EXPECT_EQ(Stepper::create(*model_, *memory_, options).error().code, Code::kInvalidArgument);
}

TEST_F(StepperTest, ThreadsDoNotChangeWhatIsComputed) {
    auto other = create({.n_threads = 2});
    ASSERT_TRUE(other);
    const Batch batch = tokens(30, 0, true);
    Plan plan = prepare(batch);
    const auto one = stepper_->compute(batch, plan, 0);
    ASSERT_TRUE(one);
    const std::vector<float> expected(one->values.begin(), one->values.end());
    const auto two = (*other)->compute(batch, plan, 0);
    ASSERT_TRUE(two);
    for (size_t i = 0; i < expected.size(); i++) {
        ASSERT_NEAR(two->values[i], expected[i], 1e-4f) << i;
    }
}

TEST_F(StepperTest, WhatTheKernelCannotReadTakesTheGraphPath) {
    if (!far_memory()) GTEST_SKIP() << "this ggml lets no test make a buffer type";
    const Batch batch = tokens(30, 0, true);
    const std::vector<float> expected = logits_in({nullptr}, batch);
    const std::vector<float> far = logits_in({far_memory()}, batch);
    ASSERT_EQ(far.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        ASSERT_NEAR(far[i], expected[i], 1e-4f) << i;
    }
    EXPECT_FALSE(kernel_reads(*memory_, 0));
    EXPECT_TRUE(create({.attention = AttentionChoice::kGraph}));
    const auto kernel = create({.attention = AttentionChoice::kKernel});
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code, Code::kUnsupported);
    EXPECT_NE(kernel.error().message.find("layer 0 are in FAR"), std::string::npos)
        << kernel.error().message;
}

// The group attends in two parts, each by its own plan of the same cells.
TEST_F(StepperTest, LayersThatTheKernelCanReadTakeItBesideOthersThatItCannot) {
    if (!far_memory()) GTEST_SKIP() << "this ggml lets no test make a buffer type";
    const Batch batch = tokens(30, 0, true);
    const std::vector<float> expected = logits_in({nullptr}, batch);
    const StepperStats alone = stepper_->stats();
    const std::vector<float> mixed = logits_in({nullptr, far_memory()}, batch);
    ASSERT_EQ(mixed.size(), expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        ASSERT_NEAR(mixed[i], expected[i], 1e-4f) << i;
    }
    EXPECT_EQ(stepper_->stats().attended_cells, alone.attended_cells);
    EXPECT_EQ(stepper_->stats().read_cells, alone.read_cells);

    const auto parts = choose_attention(*memory_, AttentionChoice::kAuto, {});
    ASSERT_TRUE(parts);
    ASSERT_EQ(parts->parts.size(), 2U);
    EXPECT_EQ(parts->parts[0].options.path, AttentionPath::kKernel);
    EXPECT_EQ(parts->parts[1].options.path, AttentionPath::kGraph);
    EXPECT_EQ(parts->of_layer, (std::vector<std::optional<size_t>>{0, 1, 0, 1}));
    const auto all = choose_attention(*memory_, AttentionChoice::kGraph, {});
    ASSERT_TRUE(all);
    EXPECT_EQ(all->parts.size(), 1U);
    const auto refused = choose_attention(*memory_, AttentionChoice::kKernel, {});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("layer 1 are in FAR"), std::string::npos)
        << refused.error().message;
}

TEST_F(StepperTest, MemoryOfAnotherDeviceIsRefusedBeforeAnythingReadsIt) {
    if (!far_memory()) GTEST_SKIP() << "this ggml lets no test make a buffer type";
    make_memory({far_memory(false)});
    const auto made = create({});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    EXPECT_NE(made.error().message.find("pool_k_0, in LOST"), std::string::npos)
        << made.error().message;
}

}  // namespace
}  // namespace cellar
