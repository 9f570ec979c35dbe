// Scenarios of sliding windows on tensors: what is done equals a fresh memory (O), with NaN in
// every cell that nobody sees; what cannot be done is refused and changes nothing.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cells/audit.h"
#include "cells/view.h"
#include "engine/decoding.h"
#include "testing/poison.h"
#include "testing/seen_hash.h"

namespace cellar {
namespace {

using testing::choose;
using testing::Decoding;
using testing::max_difference;
using testing::poison;
using testing::Row;
using testing::seen_hash;
using testing::Way;

constexpr float kTolerance = 2e-3f;
constexpr SeqId kOne{0}, kOther{1};

const Model& tiny_gemma3() {
    static const auto kModel = testing::open_model(CELLAR_TEST_DATA "/models/tiny-gemma3.gguf");
    return *kModel;
}

uint32_t window() {
    for (const GroupKind kind : tiny_gemma3().info().kinds)
        if (kind.slides()) return kind.window;
    return 0;
}

std::vector<Token> text(size_t n, size_t salt) {
    std::vector<Token> tokens(n);
    for (size_t i = 0; i < n; i++)
        tokens[i] = static_cast<Token>((i * 37 + salt * 11 + i * i) % 128);
    return tokens;
}

std::vector<Token> join(const std::vector<Token>& a, size_t n, const std::vector<Token>& b) {
    std::vector<Token> tokens(a.begin(), a.begin() + static_cast<ptrdiff_t>(n));
    tokens.insert(tokens.end(), b.begin(), b.end());
    return tokens;
}

class WindowScenarios : public ::testing::TestWithParam<Way> {
protected:
    DecoderOptions options(uint32_t page_size = 4) const {
        DecoderOptions options;
        options.n_cells = 2048;
        options.page_size = page_size;
        options.max_ubatch = 32;
        options.type_k = options.type_v = KvType::kF32;
        choose(GetParam(), options);
        return options;
    }

    Row fresh(const std::vector<Token>& tokens) const {
        DecoderOptions wide = options(32);
        wide.swa_full = true;
        Decoding decoding(tiny_gemma3(), wide);
        return decoding.append(kOne, tokens);
    }
};

TEST_P(WindowScenarios, R1RewindInsideAndBeyondTheWindow) {
    ASSERT_GT(window(), 0u);
    const auto end = static_cast<Pos>(3 * window());
    const std::vector<Token> told = text(static_cast<size_t>(end), 1), next = text(5, 2);
    int done = 0, refused = 0;
    const Pos step = std::max<Pos>(1, end / 24);
    for (Pos p0 = end - 1; p0 >= 1; p0 -= p0 > end - 4 ? 1 : step) {
        Decoding decoding(tiny_gemma3(), options());
        decoding.append(kOne, told);
        Memory& memory = decoding.memory();
        const auto before = seen_hash(memory, kOne);
        const auto removed = memory.seq_rm(kOne, p0, -1);
        EXPECT_EQ(audit(memory.cells()), std::nullopt);
        if (removed) {
            poison(memory);
            const Row row = decoding.append(kOne, next);
            EXPECT_LE(max_difference(row, fresh(join(told, static_cast<size_t>(p0), next))),
                      kTolerance)
                << p0;
            done++;
        } else {
            EXPECT_EQ(removed.error().code, Code::kForgotten);
            EXPECT_EQ(seen_hash(memory, kOne), before);
            EXPECT_EQ(memory.seq_pos_max(kOne), end - 1);
            refused++;
        }
        ASSERT_TRUE(memory.seq_rm(kOne, -1, -1));
        for (const GroupView& group : make_view(memory.cells()).groups)
            EXPECT_EQ(group.free_pages, group.pages);
    }
    EXPECT_GT(done, 0);
    EXPECT_GT(refused, 0);
}

TEST_P(WindowScenarios, ACheckpointCanBeGoneBackToAndShared) {
    DecoderOptions keeping = options();
    keeping.max_checkpoints = 2;
    Decoding decoding(tiny_gemma3(), keeping);
    Memory& memory = decoding.memory();
    const size_t n = 2 * window();
    const std::vector<Token> told = text(n, 3), more = text(3 * window(), 4), next = text(7, 5);
    decoding.append(kOne, told);
    ASSERT_TRUE(memory.checkpoint(kOne));
    decoding.append(kOne, more);
    EXPECT_FALSE(memory.seq_rm(kOne, static_cast<Pos>(n) - 9, -1));
    const Row expected = fresh(join(told, n, next));
    ASSERT_TRUE(memory.seq_cp(kOne, kOther, 0, static_cast<Pos>(n)));
    poison(memory);
    EXPECT_LE(max_difference(decoding.append(kOther, next), expected), kTolerance);
    ASSERT_TRUE(memory.seq_rm(kOne, static_cast<Pos>(n), -1));
    poison(memory);
    EXPECT_LE(max_difference(decoding.append(kOne, next), expected), kTolerance);
    EXPECT_EQ(audit(memory.cells()), std::nullopt);
}

TEST_P(WindowScenarios, ADraftCanBeTakenBack) {
    DecoderOptions drafting = options();
    drafting.n_rollback = 4;
    Decoding decoding(tiny_gemma3(), drafting);
    std::vector<Token> told = text(3 * window() + 1, 6);
    decoding.append(kOne, told);
    for (size_t round = 0; round < 12; round++) {
        const std::vector<Token> draft = text(4, 20 + round), accepted = text(2, 40 + round);
        decoding.append(kOne, draft);
        const size_t kept = told.size() + round % 4;
        ASSERT_TRUE(decoding.memory().seq_rm(kOne, static_cast<Pos>(kept), -1)) << round;
        told = join(join(told, told.size(), draft), kept, accepted);
        poison(decoding.memory());
        EXPECT_LE(max_difference(decoding.append(kOne, accepted), fresh(told)), kTolerance);
    }
}

// A step costs a window, not a sequence; and what left is used again.
TEST_P(WindowScenarios, WindowsBoundWhatIsReadAndWhatIsHeld) {
    Decoding decoding(tiny_gemma3(), options());
    const auto n = static_cast<uint32_t>(8 * window());
    decoding.append(kOne, text(n, 7));
    const uint64_t before = decoding.decoder().stepper().stats().attended_cells;
    decoding.append(kOne, text(1, 8));
    EXPECT_EQ(decoding.decoder().stepper().stats().attended_cells - before, n + 1 + window());
    const Cells& cells = decoding.memory().cells();
    for (uint32_t g = 0; g < cells.n_groups(); g++) {
        if (!cells.kind(g).slides()) continue;
        const GroupView view = make_view(cells).groups[g];
        EXPECT_LE(view.used_cells, window() + view.page_size);
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, WindowScenarios,
                         ::testing::Values(Way::kKernel, Way::kFlash, Way::kSoftMax),
                         [](const auto& info) {
                             return info.param == Way::kKernel  ? "kernel"
                                    : info.param == Way::kFlash ? "flash"
                                                                : "softmax";
                         });

}  // namespace
}  // namespace cellar
