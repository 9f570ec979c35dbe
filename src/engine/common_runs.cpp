#include "engine/common_runs.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace cellar {
namespace {

using Tokens = std::span<const Token>;

// Hashes of all runs of `n` tokens, each from the one before it.
class RollingHash {
public:
    RollingHash(Tokens tokens, size_t n) : tokens_(tokens), n_(n) {
        for (size_t i = 0; i < n; i++) {
            take_in(tokens[i]);
            power_ *= kBase;
        }
    }

    uint64_t value() const { return value_; }

    // From the run that begins at `first` to the next one.
    void roll(size_t first) {
        take_in(tokens_[first + n_]);
        value_ -= power_ * digit(tokens_[first]);
    }

private:
    static constexpr uint64_t kBase = 0x9E3779B97F4A7C15;  // odd: all of its powers are

    static uint64_t digit(Token token) { return static_cast<uint64_t>(token) + 1; }
    void take_in(Token token) { value_ = value_ * kBase + digit(token); }

    const Tokens tokens_;
    const size_t n_;
    uint64_t value_ = 0;
    uint64_t power_ = 1;  // kBase^n
};

// A run of `n` tokens that both have, or one of none. O(held + text).
CommonRun run_of(size_t n, Tokens held, Tokens text) {
    if (n > held.size() || n > text.size()) {
        return {};
    }
    std::unordered_map<uint64_t, size_t> places;  // of runs in `held`, by hash
    RollingHash hash(held, n);
    for (size_t at = 0; at + n <= held.size(); at++) {
        places.emplace(hash.value(), at);
        if (at + n < held.size()) {
            hash.roll(at);
        }
    }
    RollingHash wanted(text, n);
    for (size_t at = 0; at + n <= text.size(); at++) {
        const auto place = places.find(wanted.value());
        if (place != places.end()) {
            const Tokens found = held.subspan(place->second, n);
            if (std::equal(found.begin(), found.end(), text.begin() + static_cast<ptrdiff_t>(at))) {
                return {place->second, at, n};
            }
        }
        if (at + n < text.size()) {
            wanted.roll(at);
        }
    }
    return {};
}

// As many more tokens behind a run as both have.
CommonRun extended(CommonRun run, Tokens held, Tokens text) {
    const Tokens a = held.subspan(run.from + run.n), b = text.subspan(run.to + run.n);
    const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
    run.n += static_cast<size_t>(differs - a.begin());
    return run;
}

// The longest run, if it has at least `at_least` tokens; else one of none. Where both have a run,
// they have all shorter ones in it, so halving finds the length.
CommonRun longest_run(size_t at_least, Tokens held, Tokens text) {
    CommonRun best = run_of(at_least, held, text);
    if (best.n == 0) {
        return best;
    }
    best = extended(best, held, text);
    size_t too_long = std::min(held.size(), text.size()) + 1;
    while (best.n + 1 < too_long) {
        const size_t n = best.n + (too_long - best.n) / 2;
        const CommonRun run = run_of(n, held, text);
        if (run.n == 0) {
            too_long = n;
        } else {
            best = extended(run, held, text);
        }
    }
    return best;
}

// Parts of both texts in which runs may lie, and the longest one there.
struct Part {
    Part(size_t held_begin_, Tokens held_, size_t text_begin_, Tokens text_, size_t at_least)
        : held_begin(held_begin_),
          text_begin(text_begin_),
          held(held_),
          text(text_),
          longest(longest_run(at_least, held, text)) {}

    Part before(size_t at_least) const {
        return {held_begin, held.first(longest.from), text_begin, text.first(longest.to), at_least};
    }
    Part behind(size_t at_least) const {
        const size_t a = longest.from + longest.n, b = longest.to + longest.n;
        return {held_begin + a, held.subspan(a), text_begin + b, text.subspan(b), at_least};
    }

    size_t held_begin, text_begin;
    Tokens held, text;
    CommonRun longest;  // counted from where the parts begin
};

}  // namespace

std::vector<CommonRun> common_runs(Tokens held, Tokens text, size_t at_least, size_t most) {
    text = text.first(text.size() - std::min<size_t>(text.size(), 1));
    std::vector<CommonRun> runs;
    const CommonRun beginning = extended({}, held, text);
    const size_t same = beginning.n;
    if (same > 0) {
        runs.push_back(beginning);
    }
    if (at_least == 0) {
        return runs;
    }
    std::vector<Part> parts;
    parts.emplace_back(same, held.subspan(same), same, text.subspan(same), at_least);
    const auto shorter = [](const Part& a, const Part& b) { return a.longest.n < b.longest.n; };
    for (size_t i = 0; i < most; i++) {
        const auto part = std::max_element(parts.begin(), parts.end(), shorter);
        const CommonRun run = part->longest;
        if (run.n == 0) {
            break;
        }
        runs.push_back({part->held_begin + run.from, part->text_begin + run.to, run.n});
        const Part behind = part->behind(at_least);
        *part = part->before(at_least);
        parts.push_back(behind);
    }
    std::sort(runs.begin(), runs.end(),
              [](const CommonRun& a, const CommonRun& b) { return a.to < b.to; });
    return runs;
}

}  // namespace cellar
