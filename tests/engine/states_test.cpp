#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/decoding.h"
#include "testing/poison.h"

// Models whose layers keep states: whatever was done to a memory, its sequences go on as a fresh
// memory would that decodes what they hold. All that nobody owns is NaN before every decode.

namespace cellar {
namespace {

using testing::Decoding;
using testing::joined;
using testing::max_difference;
using testing::open_model;
using testing::poison;
using testing::random_text;
using testing::Row;

// Pieces of other sizes round otherwise.
constexpr float kTolerance = 1e-4f;

class StatesTest : public ::testing::TestWithParam<const char*> {
protected:
    StatesTest()
        : model_(open_model(std::string(CELLAR_TEST_DATA "/models/") + GetParam() + ".gguf")) {}

    Decoding decoding(uint32_t n_rollback = 0, uint32_t max_checkpoints = 0) const {
        DecoderOptions options;
        options.n_cells = 4096;
        options.max_ubatch = 32;
        options.type_k = options.type_v = KvType::kF32;
        options.n_rollback = n_rollback;
        options.max_checkpoints = max_checkpoints;
        return {*model_, options};
    }

    static Row append(Decoding& decoding, SeqId seq, const std::vector<Token>& tokens) {
        poison(decoding.memory());
        return decoding.append(seq, tokens);
    }

    // Logits behind the last of these tokens, decoded anew.
    Row fresh(const std::vector<Token>& tokens) const {
        Decoding decoding = this->decoding();
        return append(decoding, SeqId{0}, tokens);
    }

    void expect_fresh(const Row& row, const std::vector<Token>& tokens) const {
        EXPECT_LE(max_difference(row, fresh(tokens)), kTolerance);
    }

    // Which states sequences 0 .. n - 1 end in.
    size_t distinct_states(const Memory& memory, int n) const {
        const auto& kinds = model_->info().kinds;
        const auto group = static_cast<uint32_t>(
            std::find(kinds.begin(), kinds.end(), GroupKind::recurrent()) - kinds.begin());
        std::set<PageId> pages;
        for (int seq = 0; seq < n; seq++)
            pages.insert(memory.cells().spans(SeqId{seq}, group).back().page);
        return pages.size();
    }

    const std::unique_ptr<Model> model_;
};

TEST_P(StatesTest, SequencesOfUnequalLengthsInOneBatchAreEachAsAlone) {
    Decoding decoding = this->decoding();
    const std::vector<size_t> lengths{1, 5, 40, 17};
    for (int round = 0; round < 2; round++) {
        Batch batch;
        for (size_t s = 0; s < lengths.size(); s++) {
            const auto tokens = random_text(2 * lengths[s], 7 + static_cast<uint32_t>(s));
            for (size_t i = 0; i < lengths[s]; i++) {
                const size_t at = static_cast<size_t>(round) * lengths[s] + i;
                batch.add(tokens[at], SeqId{static_cast<int>(s)}, kNextPos, i + 1 == lengths[s]);
            }
        }
        poison(decoding.memory());
        const auto rows = decoding.decode(batch);
        ASSERT_EQ(rows.size(), lengths.size());
        auto row = rows.begin();
        for (size_t s = 0; s < lengths.size(); s++, ++row) {
            auto tokens = random_text(2 * lengths[s], 7 + static_cast<uint32_t>(s));
            tokens.resize(static_cast<size_t>(round + 1) * lengths[s]);
            expect_fresh(row->second, tokens);
        }
    }
}

TEST_P(StatesTest, ForksShareAStateUntilTheyDecode) {
    constexpr int kForks = 64;
    Decoding decoding = this->decoding();
    const auto prompt = random_text(20, 1);
    append(decoding, SeqId{0}, prompt);
    for (int seq = 1; seq < kForks; seq++)
        ASSERT_TRUE(decoding.memory().seq_cp(SeqId{0}, SeqId{seq}, -1, -1));
    EXPECT_EQ(distinct_states(decoding.memory(), kForks), 1u);
    Batch batch;
    for (int seq = 0; seq < kForks; seq++)
        batch.add(seq, SeqId{seq}, kNextPos, true);
    poison(decoding.memory());
    const auto rows = decoding.decode(batch);
    EXPECT_EQ(distinct_states(decoding.memory(), kForks), static_cast<size_t>(kForks));
    for (const int seq : {0, 1, 31, 32, 63})
        expect_fresh(rows.at(static_cast<size_t>(seq)), joined(prompt, {seq}));
}

TEST_P(StatesTest, ACancelledStepLeavesTheOldState) {
    Decoding decoding = this->decoding();
    const auto prompt = random_text(20, 2);
    append(decoding, SeqId{0}, prompt);
    {
        Batch batch;
        batch.add(3, SeqId{0}, kNextPos, true);
        auto plan = decoding.memory().prepare(batch, {});
        ASSERT_TRUE(plan);
        auto stepper = Stepper::create(*model_, decoding.memory(), {});
        ASSERT_TRUE(stepper);
        ASSERT_TRUE((*stepper)->compute(batch, *plan, 0));  // and no commit
    }
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), 19);
    expect_fresh(append(decoding, SeqId{0}, {5}), joined(prompt, {5}));
}

TEST_P(StatesTest, DraftsAreTakenBackToAnyOfTheirTokens) {
    const auto prompt = random_text(20, 3), draft = random_text(4, 4);
    for (int taken = 1; taken <= 4; taken++) {
        Decoding decoding = this->decoding(4);
        for (const SeqId seq : {SeqId{0}, SeqId{1}})
            append(decoding, seq, prompt);
        Batch batch;  // two runs, so that states of one are not taken for the other's
        for (const Token token : draft) {
            batch.add(token, SeqId{0}, kNextPos, true);
            batch.add((token + 1) % 128, SeqId{1}, kNextPos, true);
        }
        poison(decoding.memory());
        decoding.decode(batch);
        ASSERT_TRUE(decoding.memory().seq_rm(SeqId{0}, 24 - taken, -1)) << taken;
        auto left = draft;
        left.resize(static_cast<size_t>(4 - taken));
        expect_fresh(append(decoding, SeqId{0}, {9}), joined(joined(prompt, left), {9}));
    }
}

TEST_P(StatesTest, ASequenceGoesBackToItsCheckpoint) {
    Decoding decoding = this->decoding(0, 2);
    const auto prompt = random_text(20, 5);
    append(decoding, SeqId{0}, prompt);
    ASSERT_TRUE(decoding.memory().checkpoint(SeqId{0}));
    append(decoding, SeqId{0}, random_text(10, 6));
    EXPECT_FALSE(decoding.memory().seq_rm(SeqId{0}, 25, -1));
    ASSERT_TRUE(decoding.memory().seq_rm(SeqId{0}, 20, -1));
    expect_fresh(append(decoding, SeqId{0}, {9}), joined(prompt, {9}));
}

INSTANTIATE_TEST_SUITE_P(Models, StatesTest, ::testing::Values("tiny-mamba", "tiny-lfm2"));

}  // namespace
}  // namespace cellar
