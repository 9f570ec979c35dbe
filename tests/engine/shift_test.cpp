#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/decoding.h"

// Keys that are turned when they are read, and keys that were re-encoded, give the same logits.

namespace cellar {
namespace {

using testing::Decoding;
using testing::max_difference;
using testing::Row;
using testing::tiny_llama;

// Measured: at most 4e-7, where positions that are not halved make 1.3e-3.
constexpr float kTolerance = 1e-5f;
constexpr float kOtherPositions = 1e-3f;

class ShiftTest : public ::testing::TestWithParam<KvType> {
protected:
    ShiftTest() {
        std::vector<Token> tokens(kTokens);
        std::iota(tokens.begin(), tokens.end(), 20);
        decoding_.append(kDivided, tokens);
        for (const SeqId seq : {kShifted, kUntouched})
            EXPECT_TRUE(memory().seq_cp(kDivided, seq, -1, -1));
    }

    static DecoderOptions options() {
        DecoderOptions options;
        options.n_cells = 256;
        options.page_size = 8;
        options.type_k = GetParam();
        options.type_v = KvType::kF32;
        return options;
    }

    // One token after another to half its position.
    void halve_by_shifts(SeqId seq, Pos end) {
        for (Pos pos = 1; pos < end; pos++)
            ASSERT_TRUE(memory().seq_add(seq, pos, pos + 1, pos / 2 - pos));
    }

    Row next(SeqId seq) { return decoding_.append(seq, {7}); }
    Memory& memory() { return decoding_.memory(); }

    static constexpr SeqId kDivided{0}, kShifted{1}, kUntouched{2};
    static constexpr Pos kTokens = 16;

    Decoding decoding_{tiny_llama(), options()};
};

TEST_P(ShiftTest, DividedPositionsEqualShiftedOnes) {
    for (const SeqId seq : {kDivided, kShifted, kUntouched})
        ASSERT_TRUE(memory().seq_rm(seq, 14, -1));
    Decoding alone(tiny_llama(), options());
    std::vector<Token> tokens(14);
    std::iota(tokens.begin(), tokens.end(), 20);
    alone.append(kDivided, tokens);

    halve_by_shifts(kShifted, 14);
    ASSERT_TRUE(memory().pending().empty());  // eight deltas: no key was touched
    ASSERT_TRUE(memory().seq_div(kDivided, 0, -1, 2));
    ASSERT_FALSE(memory().pending().empty());
    ASSERT_EQ(memory().seq_pos_max(kShifted), 6);
    ASSERT_EQ(memory().seq_pos_max(kDivided), 6);
    EXPECT_EQ(memory().defrag(100).error().code, Code::kBusy);

    const Row shifted = next(kShifted);
    EXPECT_TRUE(memory().pending().empty());
    EXPECT_LE(max_difference(next(kDivided), shifted), kTolerance);
    const Row untouched = next(kUntouched);
    EXPECT_EQ(max_difference(untouched, alone.append(kDivided, {7})), 0);
    EXPECT_GT(max_difference(untouched, shifted), kOtherPositions);
}

// The ninth delta re-encodes all moved cells: first they are turned, then kept turned.
TEST_P(ShiftTest, TooManyDeltasAreReencoded) {
    halve_by_shifts(kShifted, kTokens);
    ASSERT_FALSE(memory().pending().empty());
    ASSERT_TRUE(memory().seq_div(kDivided, 0, -1, 2));
    EXPECT_LE(max_difference(next(kDivided), next(kShifted)), kTolerance);
    for (const Span& span : memory().cells().spans(kShifted, 0))
        EXPECT_EQ(span.delta, 0);
}

// Verbs follow each other before anything is computed: later moves read what earlier ones write.
TEST_P(ShiftTest, MovesThatBuildOnEachOther) {
    ASSERT_TRUE(memory().seq_div(kDivided, 0, -1, 2));
    ASSERT_TRUE(memory().seq_div(kDivided, 0, -1, 2));
    ASSERT_TRUE(memory().seq_div(kShifted, 0, -1, 4));
    EXPECT_LE(max_difference(next(kDivided), next(kShifted)), kTolerance);
}

TEST_P(ShiftTest, ThereAndBackChangesNoBit) {
    const Row before = next(kUntouched);
    for (int i = 0; i < 50; i++) {
        ASSERT_TRUE(memory().seq_add(kShifted, 3, -1, 1));
        ASSERT_TRUE(memory().seq_add(kShifted, 4, -1, -1));
    }
    EXPECT_EQ(max_difference(next(kShifted), before), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, ShiftTest, ::testing::Values(KvType::kF32, KvType::kF16));

}  // namespace
}  // namespace cellar
