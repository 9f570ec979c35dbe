#pragma once

#include <cstdint>

#include "base/types.h"

namespace cellar {

// What the layers of one group keep of a sequence, and what a query of theirs sees of it.
struct GroupKind {
    enum class Type {
        kFull,       // every cell; a query sees all up to its own position
        kStandard,   // a query sees the last `window` cells, its own included
        kChunked,    // blocks of `window` positions: a query sees its own block, up to itself
        kWhole,      // encoders: every cell; a query sees all of its sequence, behind itself too
        kSymmetric,  // encoders: a query sees window / 2 positions on each side, and its own
        kRecurrent,  // no cells: one state, which has taken up all tokens so far
    };

    Type type = Type::kFull;
    uint32_t window = 0;  // positions; at least 1 for kStandard, kChunked, kSymmetric, else 0

    static constexpr GroupKind full() { return {}; }
    static constexpr GroupKind whole() { return {Type::kWhole, 0}; }
    static constexpr GroupKind sliding(uint32_t window) { return {Type::kStandard, window}; }
    static constexpr GroupKind chunked(uint32_t window) { return {Type::kChunked, window}; }
    static constexpr GroupKind symmetric(uint32_t window) { return {Type::kSymmetric, window}; }
    static constexpr GroupKind recurrent() { return {Type::kRecurrent, 0}; }

    constexpr bool is_recurrent() const { return type == Type::kRecurrent; }
    constexpr bool slides() const { return window > 0; }
    constexpr bool is_causal() const { return type != Type::kWhole && type != Type::kSymmetric; }

    // The positions that a query at `query` sees, cells permitting. A recurrent group answers as a
    // full one: its state has taken up all of them.
    constexpr Range sees(Pos query) const {
        switch (type) {
            case Type::kFull:
            case Type::kRecurrent:
                break;
            case Type::kWhole:
                return {0, kMaxPos};
            case Type::kStandard:
                return {at_least_0(int64_t{query} - window + 1), query + 1};
            case Type::kChunked:
                return {at_least_0(int64_t{query} - int64_t{query} % window), query + 1};
            case Type::kSymmetric:
                return {at_least_0(int64_t{query} - window / 2),
                        at_most_max(int64_t{query} + window / 2 + 1)};
        }
        return {0, query + 1};
    }

    // The positions that a sequence must hold to go on after a token at `last`: what the next query
    // sees, or the one state that has taken up all tokens up to there. Always the token itself: it
    // says where the sequence goes on.
    constexpr Range carries(Pos last) const {
        if (is_recurrent()) return {last, last + 1};
        const Pos begin = sees(last + 1).begin;
        return {begin < last ? begin : last, last + 1};
    }

    friend constexpr bool operator==(const GroupKind&, const GroupKind&) = default;

private:
    static constexpr Pos at_least_0(int64_t p) { return p < 0 ? 0 : static_cast<Pos>(p); }
    static constexpr Pos at_most_max(int64_t p) {
        return p > kMaxPos ? kMaxPos : static_cast<Pos>(p);
    }
};

}  // namespace cellar
