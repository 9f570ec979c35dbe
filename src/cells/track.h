#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/types.h"
#include "cells/page_pool.h"
#include "cells/span.h"

namespace cellar {

// The cells of one sequence in one group: spans in order of position. Each span is one holder of
// its page. A Track does not own its pool; every method takes it, and the tracks of one group are
// always given the same one.
//
// Shifting may lay spans over each other (two cells at one position). All methods stay right then;
// finding a position costs a look at every span instead of a binary search.
class Track {
public:
    std::span<const Span> spans() const { return spans_; }
    uint32_t n_cells() const { return n_cells_; }
    bool empty() const { return spans_.empty(); }
    size_t bytes() const { return sizeof(*this) + spans_.capacity() * sizeof(Span); }

    // -1 when empty. O(1), but O(spans) where spans lie over each other.
    Pos pos_min(const PagePool& pool) const;
    Pos pos_max(const PagePool& pool) const;

    // The greatest position before `p`, or -1. O(log spans) where spans are in order.
    Pos pos_max_before(const PagePool& pool, Pos p) const;

    // Cells at positions before `p`. O(spans before p).
    uint32_t cells_before(const PagePool& pool, Pos p) const;

    // Forgets the cells in `range`. O(spans touched).
    void remove(PagePool& pool, Range range);

    // Forgets everything. O(spans).
    void release(PagePool& pool);

    // Takes what `from` sees in `range`, by reference; this track must hold nothing there.
    void adopt(PagePool& pool, const Track& from, Range range);

    // Moves the positions of the cells in `range` by `delta`; cells that would fall below 0 are
    // forgotten. The caller has checked that no position overflows.
    void shift(PagePool& pool, Range range, Pos delta);

    // The cells of the last span were copied to the start of `page`, which they now stand on.
    // `held`: the caller already holds the page for this track, with end 0.
    void move_tail(PagePool& pool, PageId page, bool held);

    // Appends cells that lie behind every other. `held`: as above.
    void append(PagePool& pool, const Span& grown, bool held);

    // Puts other spans in the place of those in `range`: `rewrite` appends them to its second
    // argument, or the span itself to keep it, and sees to the holds of what it changes.
    using Rewrite = std::function<void(const Span&, std::vector<Span>&)>;
    void rewrite(PagePool& pool, Range range, const Rewrite& rewrite);

private:
    Pos first_pos(const PagePool& pool, const Span& s) const {
        return pool.pos(s.page, s.first) + s.delta;
    }
    Pos last_pos(const PagePool& pool, const Span& s) const {
        return pool.pos(s.page, s.first + s.count - 1u) + s.delta;
    }
    // Index of the first span that may hold a position >= p.
    size_t find(const PagePool& pool, Pos p) const;
    void cut(PagePool& pool, Pos p);
    void sort(const PagePool& pool, size_t first);

    std::vector<Span> spans_;
    uint32_t n_cells_ = 0;
    bool ordered_ = true;  // no span begins before the one before it ends
};

// Cells of a span at positions before `p`. O(1) where positions count up, else O(log count).
uint32_t span_cells_before(const PagePool& pool, const Span& span, Pos p);

// True when `next` goes on where `span` ends, so that one span can stand for both: the same page
// and delta, and positions that do not fall.
bool continues(const PagePool& pool, const Span& span, const Span& next);

}  // namespace cellar
