#include "cli/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace cellar::cli {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// As llama-batched-bench warms up.
constexpr uint32_t kWarmUpTokens = 16;

}  // namespace

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

Result<uint32_t> BenchWork::cells_needed(uint32_t page_size) const {
    const auto in_pages = [page_size](uint64_t n) {
        return (n + page_size - 1) / page_size * page_size;
    };
    const uint64_t prefix = uint64_t{depth} + prompt;
    // A fork's first token may need a copy of the page that the shared prefix ends in.
    const uint64_t cells = shared ? in_pages(prefix) + seqs * in_pages(uint64_t{page_size} + gen)
                                  : seqs * in_pages(prefix + gen);
    constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
    if (cells > kMax) {
        return fail(Code::kBadRange,
                    fmt::format("this work needs {} cells; a memory has {} at most", cells, kMax));
    }
    return static_cast<uint32_t>(std::max<uint64_t>(cells, in_pages(kWarmUpTokens + 1)));
}

Result<BenchTimes> BenchRun::run() {
    BenchTimes times;
    times.cells = decoder_.memory().config().n_cells;
    if (auto warm = warm_up(); !warm) {
        return pass(std::move(warm));
    }
    if (auto filled = prefill(work_.depth); !filled) {
        return pass(std::move(filled));
    }
    const StepperStats before = decoder_.stepper().stats();
    auto prompt_s = prefill(work_.prompt);
    if (!prompt_s) {
        return pass(std::move(prompt_s));
    }
    if (auto forked = fork(); !forked) {
        return pass(std::move(forked));
    }
    auto gen_s = generate(work_.gen);
    if (!gen_s) {
        return pass(std::move(gen_s));
    }
    const StepperStats& after = decoder_.stepper().stats();
    times.prompt_s = *prompt_s;
    times.gen_s = *gen_s;
    times.attended_cells = after.attended_cells - before.attended_cells;
    times.read_cells = after.read_cells - before.read_cells;
    times.graphs_built = after.graphs_built - before.graphs_built;
    return times;
}

Result<void> BenchRun::warm_up() {
    for (const uint32_t n : {kWarmUpTokens, 1u}) {
        batch_.clear();
        for (uint32_t i = 0; i < n; i++) {
            batch_.add(random_token(), SeqId{0}, kNextPos, i + 1 == n);
        }
        if (auto seconds = decode(); !seconds) {
            return pass(std::move(seconds));
        }
    }
    return decoder_.memory().clear(false);
}

// Appends n tokens to each sequence (shared: to the first one), with logits for the last of each.
Result<double> BenchRun::prefill(uint32_t n_tokens) {
    batch_.clear();
    const uint32_t n_seqs = work_.shared ? 1 : work_.seqs;
    for (uint32_t seq = 0; seq < n_seqs; seq++) {
        for (uint32_t i = 1; i <= n_tokens; i++) {
            batch_.add(random_token(), SeqId{static_cast<int32_t>(seq)}, kNextPos, i == n_tokens);
        }
    }
    return decode();
}

// Makes the other sequences what the first one is.
Result<void> BenchRun::fork() {
    for (uint32_t seq = 1; work_.shared && seq < work_.seqs; seq++) {
        const SeqId to{static_cast<int32_t>(seq)};
        if (auto copied = decoder_.memory().seq_cp(SeqId{0}, to, kOpen, kOpen); !copied) {
            return copied;
        }
    }
    return {};
}

// A token for every sequence in each step, with logits.
Result<double> BenchRun::generate(uint32_t n_tokens) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        batch_.clear();
        for (uint32_t seq = 0; seq < work_.seqs; seq++) {
            batch_.add(random_token(), SeqId{static_cast<int32_t>(seq)}, kNextPos, true);
        }
        auto seconds = decode();
        if (!seconds) {
            return seconds;
        }
        sum += *seconds;
    }
    return sum;
}

// Computes batch_; says how many seconds it took.
Result<double> BenchRun::decode() {
    if (batch_.empty()) {
        return 0.0;
    }
    const Clock::time_point start = Clock::now();
    if (auto decoded = decoder_.decode(batch_, [](size_t, std::span<const float>) {}); !decoded) {
        return pass(std::move(decoded));
    }
    return seconds_since(start);
}

Token BenchRun::random_token() {
    return static_cast<Token>(random_() % n_vocab_);
}

}  // namespace cellar::cli
