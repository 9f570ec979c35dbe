#include "cli/bench_shift.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

namespace cellar::cli {

namespace {

constexpr uint32_t kKept = 4, kRemoved = 16;  // of the moved sequence, before what moves
constexpr uint32_t kWarmUpSteps = 8;
constexpr SeqId kStays{0}, kMoves{1};

// Two sequences that grow alike, each with its times.
class Race {
public:
    Race(Decoder& decoder, uint32_t n_vocab)
        : decoder_(decoder), n_vocab_(n_vocab), batch_(decoder.memory().config().n_pos) {}

    // Appends n tokens to a sequence, with logits for the last; says how many seconds it took.
    Result<double> append(SeqId seq, uint32_t n) {
        batch_.clear();
        for (uint32_t i = 1; i <= n; i++) {
            batch_.add(static_cast<Token>(random_() % n_vocab_), seq, kNextPos, i == n);
        }
        const auto start = std::chrono::steady_clock::now();
        auto decoded = decoder_.decode(batch_, [](size_t, std::span<const float>) {});
        if (!decoded) {
            return pass(std::move(decoded));
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    Result<void> shift() {
        const Pos begin = kKept, end = kKept + kRemoved;
        if (auto removed = decoder_.memory().seq_rm(kMoves, begin, end); !removed) {
            return removed;
        }
        return decoder_.memory().seq_add(kMoves, end, kOpen, begin - end);
    }

private:
    Decoder& decoder_;
    const uint32_t n_vocab_;
    std::mt19937 random_{0};  // every run computes the same tokens
    Batch batch_;
};

}  // namespace

BenchWork shift_work(const BenchWork& work) {
    BenchWork both = work;
    both.seqs = 2;
    both.shared = false;
    both.gen += kWarmUpSteps;
    both.prompt += kKept + kRemoved;
    return both;
}

Result<ShiftTimes> time_shift(Decoder& decoder, const BenchWork& work, uint32_t n_vocab) {
    Race race(decoder, n_vocab);
    const uint32_t n_cells = work.depth + work.prompt + kKept;
    for (const auto& [seq, n] : {std::pair(kStays, n_cells), {kMoves, n_cells + kRemoved}}) {
        if (auto filled = race.append(seq, n); !filled) {
            return pass(std::move(filled));
        }
    }
    if (auto shifted = race.shift(); !shifted) {
        return pass(std::move(shifted));
    }
    std::vector<double> before, after;
    for (uint32_t step = 0; step < kWarmUpSteps + work.gen; step++) {
        const bool stays_first = step % 2 == 0;
        for (const bool stays : {stays_first, !stays_first}) {
            auto seconds = race.append(stays ? kStays : kMoves, 1);
            if (!seconds) {
                return pass(std::move(seconds));
            }
            if (step >= kWarmUpSteps) {
                (stays ? before : after).push_back(*seconds);
            }
        }
    }
    return ShiftTimes{median(std::move(before)), median(std::move(after))};
}

}  // namespace cellar::cli
