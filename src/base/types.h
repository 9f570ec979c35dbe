#pragma once

#include <cstdint>
#include <limits>

namespace cellar {

using Token = int32_t;  // an index into a model's vocabulary
using Pos = int32_t;    // a position in a sequence, counted in tokens from 0

// A sequence, named by the caller: any number from 0 to 2^31 - 1.
enum class SeqId : int32_t {};

// In verbs: every sequence.
inline constexpr SeqId kEverySeq{-1};

// In verbs: an open end of a range of positions.
inline constexpr Pos kOpen = -1;

inline constexpr Pos kMaxPos = std::numeric_limits<Pos>::max();

constexpr int32_t value(SeqId id) {
    return static_cast<int32_t>(id);
}

// Positions [begin, end), as verbs understand them after open ends were resolved.
struct Range {
    Pos begin = 0;
    Pos end = 0;

    constexpr bool empty() const { return begin >= end; }
    constexpr bool contains(Pos p) const { return begin <= p && p < end; }
    friend constexpr bool operator==(Range, Range) = default;
};

// The convention of llama.cpp's verbs: a negative begin is 0, a negative end is open.
constexpr Range make_range(Pos p0, Pos p1) {
    return {p0 < 0 ? 0 : p0, p1 < 0 ? kMaxPos : p1};
}

}  // namespace cellar
