#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/types.h"

namespace cellar {

// A range moved by `delta`; what would lie below 0 is cut off.
constexpr Range moved(Range range, Pos delta) {
    const Pos begin = range.begin + delta, end = range.end + delta;
    return {begin < 0 ? 0 : begin, end < 0 ? 0 : end};
}

// A set of positions: ranges in ascending order that neither overlap nor touch. Nearly always none
// or one.
class Ranges {
public:
    bool empty() const { return list_.empty(); }
    std::span<const Range> list() const { return list_; }
    size_t bytes() const { return list_.capacity() * sizeof(Range); }

    // Whether any position of `range` is in the set.
    bool intersects(Range range) const;

    void clear() { list_.clear(); }
    void add(Range range);
    void subtract(Range range);

    // Adds what `other` has inside `range`.
    void add_from(const Ranges& other, Range range);

    // Moves the positions inside `range`: each piece of the set there becomes move(piece), which
    // may be empty.
    void move(Range range, const std::function<Range(Range)>& move);

private:
    std::vector<Range> list_;
};

}  // namespace cellar
