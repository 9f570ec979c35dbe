#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/decoding.h"
#include "testing/poison.h"

// The oracle rule: after any history of appends, forks and tail removals, a sequence's next logits
// are those of a fresh memory that decodes its list of tokens. The poison rule: what no sequence
// sees is NaN all the while.

namespace cellar {
namespace {

using testing::Decoding;
using testing::max_difference;
using testing::poison;
using testing::Row;
using testing::tiny_llama;
using testing::Way;

struct HistoryCase {
    uint32_t seed;
    KvType type;
    Way way;
    float tolerance;  // of logits, which lie within about 1
};

std::ostream& operator<<(std::ostream& out, const HistoryCase& c) {
    return out << "seed " << c.seed << ", " << name(c.type) << ", " << c.way;
}

class DecoderHistoryTest : public ::testing::TestWithParam<HistoryCase> {
protected:
    static constexpr int kSequences = 4;
    static constexpr size_t kMaxTokens = 90;

    uint32_t draw(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
    int any() { return static_cast<int>(draw(kSequences)); }

    std::vector<Token> draw_tokens(uint32_t n) {
        std::vector<Token> tokens(n);
        std::generate(tokens.begin(), tokens.end(), [&] { return static_cast<Token>(draw(128)); });
        return tokens;
    }

    static DecoderOptions options() {
        DecoderOptions options;
        options.n_cells = 512;
        options.page_size = 8;
        options.max_ubatch = 16;
        options.type_k = GetParam().type;
        options.type_v = GetParam().type;
        choose(GetParam().way, options);
        return options;
    }

    void append() {
        Batch batch;
        for (int n_seqs = static_cast<int>(1 + draw(3)); n_seqs > 0; n_seqs--) {
            const int seq = any();
            for (const Token token : draw_tokens(1 + draw(20))) {
                if (lists_[seq].size() < kMaxTokens) {
                    batch.add(token, SeqId{seq});
                    lists_[seq].push_back(token);
                }
            }
        }
        if (!batch.empty()) {
            decoding_.decode(batch);
        }
    }

    void remove_tail() {
        const int seq = any();
        std::vector<Token>& list = lists_[seq];
        const uint32_t kept = draw(static_cast<uint32_t>(list.size()) + 1);
        ASSERT_TRUE(decoding_.memory().seq_rm(SeqId{seq}, static_cast<Pos>(kept), kOpen));
        list.resize(kept);
    }

    void fork() {
        const int from = any();
        const int to = any();
        if (from == to) {
            return;
        }
        const uint32_t kept = draw(static_cast<uint32_t>(lists_[from].size()) + 1);
        ASSERT_TRUE(decoding_.memory().seq_rm(SeqId{to}, 0, kOpen));
        ASSERT_TRUE(decoding_.memory().seq_cp(SeqId{from}, SeqId{to}, 0, static_cast<Pos>(kept)));
        lists_[to].assign(lists_[from].begin(), lists_[from].begin() + kept);
    }

    // Extends all sequences that hold something by one token, in one batch, and judges its logits.
    void probe() {
        Batch batch;
        for (int seq = 0; seq < kSequences; seq++) {
            if (!lists_[seq].empty() && lists_[seq].size() < kMaxTokens) {
                lists_[seq].push_back(static_cast<Token>(draw(128)));
                batch.add(lists_[seq].back(), SeqId{seq}, kNextPos, true);
            }
        }
        if (batch.empty()) {
            return;
        }
        for (const auto& [item, row] : decoding_.decode(batch)) {
            const int seq = value(batch.seqs(item)[0]);
            Decoding fresh(tiny_llama(), options());
            EXPECT_LE(max_difference(row, fresh.append(SeqId{0}, lists_[seq])),
                      GetParam().tolerance)
                << "sequence " << seq << " of " << lists_[seq].size() << " tokens";
        }
    }

    std::mt19937 random_{GetParam().seed};
    Decoding decoding_{tiny_llama(), options()};
    std::map<int, std::vector<Token>> lists_;
};

TEST_P(DecoderHistoryTest, NextLogitsAreThoseOfAFreshMemory) {
    for (int step = 0; step < 40 && !HasFailure(); step++) {
        SCOPED_TRACE("step " + std::to_string(step));
        poison(decoding_.memory());
        switch (draw(4)) {
            case 0:
                remove_tail();
                break;
            case 1:
                fork();
                break;
            default:
                append();
        }
        poison(decoding_.memory());
        probe();
    }
}

// Stored in f16, keys and values that differ in their last f32 bits may round apart; a quantized
// block may round apart by a whole step.
INSTANTIATE_TEST_SUITE_P(Histories, DecoderHistoryTest,
                         ::testing::Values(HistoryCase{1, KvType::kF32, Way::kFlash, 1e-3f},
                                           HistoryCase{2, KvType::kF32, Way::kSoftMax, 1e-3f},
                                           HistoryCase{3, KvType::kF16, Way::kFlash, 5e-3f},
                                           HistoryCase{4, KvType::kF16, Way::kSoftMax, 5e-3f},
                                           HistoryCase{5, KvType::kF32, Way::kKernel, 1e-3f},
                                           HistoryCase{6, KvType::kF16, Way::kKernel, 5e-3f},
                                           HistoryCase{7, KvType::kF32, Way::kKernel, 1e-3f}));

}  // namespace
}  // namespace cellar
