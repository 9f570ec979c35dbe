#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/types.h"
#include "cells/page_pool.h"
#include "cells/ranges.h"
#include "cells/retention.h"
#include "cells/span.h"

namespace cellar {

// The cells of one sequence in one group: spans in order of position. Each span is one holder of
// its page. In a recurrent group they are its states: spans of one, at the position of the last
// token that the state has taken up; the last span is the current state.
// A Track does not own its pool; every method takes it, and the tracks of one group are
// always given the same one.
//
// Shifting may lay spans over each other (two cells at one position). All methods stay right then;
// finding a position costs a look at every span instead of a binary search.
class Track {
public:
    std::span<const Span> spans() const { return spans_; }
    uint32_t n_cells() const { return n_cells_; }
    bool empty() const { return spans_.empty(); }
    size_t bytes() const {
        return sizeof(*this) + spans_.capacity() * sizeof(Span) + forgotten_.bytes();
    }

    // Positions whose cells left with the window. Verbs that remove or move positions do the same
    // to these.
    const Ranges& forgotten() const { return forgotten_; }

    // Recurrent: the position of the first token that the states have taken up.
    Pos begin() const { return begin_; }
    void set_begin(Pos begin) { begin_ = begin; }

    // Recurrent: whether a state is kept that has taken up the tokens before `p`, and no more.
    bool has_state_before(const PagePool& pool, Pos p) const {
        return !empty() && pos_max_before(pool, p) == p - 1;
    }

    // -1 when empty. O(1), but O(spans) where spans lie over each other.
    Pos pos_min(const PagePool& pool) const;
    Pos pos_max(const PagePool& pool) const;

    // The greatest position before `p`, or -1. O(log spans) where spans are in order.
    Pos pos_max_before(const PagePool& pool, Pos p) const;

    // Cells at positions before `p`. O(spans before p).
    uint32_t cells_before(const PagePool& pool, Pos p) const;

    // Whether no span begins before the one before it ends.
    bool ordered() const { return ordered_; }

    // Index of the first span that may hold a position >= p; 0 where spans are out of order.
    size_t find(const PagePool& pool, Pos p) const;

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

    // Lets go of the spans of which `keep` keeps nothing, through `release`, and counts their
    // positions as forgotten if it is for a `window`. O(spans up to the newest tokens' window).
    using Release = std::function<void(const Span&)>;
    void expire(const PagePool& pool, const Retention& keep, bool window, const Release& release);

    // Recurrent: only the current state is left, at another position.
    void relabel(PagePool& pool, Pos begin, Pos last);

    // The forgotten positions inside `range` are divided too.
    void divide_forgotten(Range range, int32_t divisor);

    // Puts other spans in the place of those in `range`: `rewrite` appends them to its second
    // argument, or the span itself to keep it, and sees to the holds of what it changes.
    using Rewrite = std::function<void(const Span&, std::vector<Span>&)>;
    void rewrite(PagePool& pool, Range range, const Rewrite& rewrite);

    // Forgets everything and sees these spans instead; takes a hold for each. The rest as the
    // accessors say. O(spans).
    void replace(PagePool& pool, std::vector<Span> spans, Ranges forgotten, Pos begin);

private:
    Pos first_pos(const PagePool& pool, const Span& s) const {
        return pool.pos(s.page, s.first) + s.delta;
    }
    Pos last_pos(const PagePool& pool, const Span& s) const {
        return pool.pos(s.page, s.first + s.count - 1u) + s.delta;
    }
    // Whether span `at` begins no earlier than the one before it ends.
    bool joins(const PagePool& pool, size_t at) const;
    void cut(PagePool& pool, Pos p);
    void sort(const PagePool& pool, size_t first);

    std::vector<Span> spans_;
    Ranges forgotten_;
    uint32_t n_cells_ = 0;
    Pos begin_ = 0;
    bool ordered_ = true;  // no span begins before the one before it ends
};

// Cells of a span at positions before `p`. O(1) where positions count up, else O(log count).
uint32_t span_cells_before(const PagePool& pool, const Span& span, Pos p);

// True when `next` goes on where `span` ends, so that one span can stand for both: the same page
// and delta, and positions that do not fall.
bool continues(const PagePool& pool, const Span& span, const Span& next);

}  // namespace cellar
