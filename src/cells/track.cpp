#include "cells/track.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace cellar {

uint32_t span_cells_before(const PagePool& pool, const Span& span, Pos p) {
    // In 64 bits, since a delta may carry the difference out of 32.
    const int64_t encoded = int64_t{p} - span.delta;
    if (pool.counts_up(span.page)) {
        const int64_t n = encoded - pool.pos(span.page, span.first);
        return static_cast<uint32_t>(std::clamp<int64_t>(n, 0, span.count));
    }
    uint32_t low = 0, high = span.count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (pool.pos(span.page, span.first + middle) < encoded) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool continues(const PagePool& pool, const Span& span, const Span& next) {
    return span.page == next.page && span.end() == next.first && span.delta == next.delta &&
           pool.pos(next.page, next.first - 1u) <= pool.pos(next.page, next.first);
}

Pos Track::pos_min(const PagePool& pool) const {
    if (spans_.empty()) return -1;
    // Spans are sorted by their first position even where they lie over each other.
    return first_pos(pool, spans_.front());
}

Pos Track::pos_max(const PagePool& pool) const {
    if (spans_.empty()) return -1;
    if (ordered_) return last_pos(pool, spans_.back());
    Pos max = -1;
    for (const Span& s : spans_)
        max = std::max(max, last_pos(pool, s));
    return max;
}

Pos Track::pos_max_before(const PagePool& pool, Pos p) const {
    Pos max = -1;
    // The span that holds p may begin before it, and the one in front of it ends before it.
    const size_t at = find(pool, p);
    for (size_t i = at > 0 ? at - 1 : 0; i < spans_.size(); i++) {
        const Span& s = spans_[i];
        if (first_pos(pool, s) >= p) break;
        const uint32_t n = span_cells_before(pool, s, p);
        max = std::max(max, pool.pos(s.page, s.first + n - 1u) + s.delta);
    }
    return max;
}

uint32_t Track::cells_before(const PagePool& pool, Pos p) const {
    uint32_t n = 0;
    for (const Span& s : spans_) {
        const uint32_t before = span_cells_before(pool, s, p);
        n += before;
        if (ordered_ && before < s.count) break;
    }
    return n;
}

void Track::remove(PagePool& pool, Range range) {
    if (range.begin <= 0 && range.end == kMaxPos) return release(pool);
    forgotten_.subtract(range);
    cut(pool, range.begin);
    cut(pool, range.end);
    const size_t begin = find(pool, range.begin);
    size_t kept = begin, i = begin;
    for (; i < spans_.size(); i++) {
        const Span& s = spans_[i];
        const Pos first = first_pos(pool, s);
        if (first >= range.end) break;  // sorted by first position: nothing behind is inside
        if (first >= range.begin) {
            n_cells_ -= s.count;
            pool.release(s.page, s.end());
        } else {
            spans_[kept++] = s;
        }
    }
    spans_.erase(spans_.begin() + static_cast<ptrdiff_t>(kept),
                 spans_.begin() + static_cast<ptrdiff_t>(i));
    if (!ordered_) sort(pool, 0);
}

void Track::release(PagePool& pool) {
    // Last page first: the pool hands out what came back last, so a new sequence walks upwards.
    for (size_t i = spans_.size(); i-- > 0;)
        pool.release(spans_[i].page, spans_[i].end());
    spans_.clear();
    forgotten_.clear();
    n_cells_ = 0;
    ordered_ = true;
}

void Track::adopt(PagePool& pool, const Track& from, Range range) {
    forgotten_.add_from(from.forgotten_, range);
    if (spans_.empty()) begin_ = from.begin_;
    std::vector<Span> taken;
    const bool whole = range.begin <= 0 && range.end == kMaxPos;
    if (whole && spans_.empty()) {
        taken = from.spans_;
    } else {
        for (size_t i = from.find(pool, range.begin); i < from.spans_.size(); i++) {
            Span s = from.spans_[i];
            if (from.first_pos(pool, s) >= range.end) break;
            const uint32_t skipped = span_cells_before(pool, s, range.begin);
            const uint32_t end = span_cells_before(pool, s, range.end);
            s.first = static_cast<uint16_t>(s.first + skipped);
            s.count = static_cast<uint16_t>(end - std::min(end, skipped));
            if (s.count > 0) taken.push_back(s);
        }
    }
    for (const Span& s : taken) {
        pool.hold(s.page, s.end());
        n_cells_ += s.count;
    }
    if (spans_.empty()) {
        spans_ = std::move(taken);
        ordered_ = from.ordered_;
        // Cut at the range's begin, spans that lie over each other may change their order.
        if (!ordered_) sort(pool, 0);
        return;
    }
    const size_t at = find(pool, range.begin);
    spans_.insert(spans_.begin() + static_cast<ptrdiff_t>(at), taken.begin(), taken.end());
    if (!ordered_ || !from.ordered_) sort(pool, 0);
}

void Track::shift(PagePool& pool, Range range, Pos delta) {
    if (delta < 0) {
        const auto below = static_cast<Pos>(std::min<int64_t>(range.end, -int64_t{delta}));
        if (below > range.begin) remove(pool, {range.begin, below});
    }
    forgotten_.move(range, [&](Range r) { return moved(r, delta); });
    if (range.contains(begin_)) begin_ += delta;
    cut(pool, range.begin);
    cut(pool, range.end);
    const size_t begin = find(pool, range.begin);
    if (ordered_) {  // all spans from one to the other: their positions need no look
        const size_t end = find(pool, range.end);
        for (size_t i = begin; i < end; i++)
            spans_[i].delta += delta;
        if (!joins(pool, begin) || !joins(pool, end)) sort(pool, 0);
        return;
    }
    for (Span& s : spans_) {
        const Pos first = first_pos(pool, s);
        if (first >= range.end) break;
        if (first >= range.begin) s.delta += delta;
    }
    sort(pool, 0);
}

void Track::move_tail(PagePool& pool, PageId page, bool held) {
    Span& tail = spans_.back();
    if (held) {
        pool.move_end(page, 0, tail.count);
    } else {
        pool.hold(page, tail.count);
    }
    pool.release(tail.page, tail.end());
    tail.page = page;
    tail.first = 0;
}

void Track::append(PagePool& pool, const Span& grown, bool held) {
    n_cells_ += grown.count;
    const bool neighbour = !spans_.empty() && spans_.back().page == grown.page &&
                           spans_.back().end() == grown.first && spans_.back().delta == grown.delta;
    if (neighbour) {
        pool.move_end(grown.page, grown.first, grown.end());
        spans_.back().count = static_cast<uint16_t>(spans_.back().count + grown.count);
        return;
    }
    if (held) {
        pool.move_end(grown.page, 0, grown.end());
    } else {
        pool.hold(grown.page, grown.end());
    }
    spans_.push_back(grown);
}

void Track::expire(const PagePool& pool, const Retention& keep, bool window,
                   const Release& release) {
    size_t kept = 0, i = 0;
    for (; i < spans_.size(); i++) {
        const Span s = spans_[i];
        const Pos first = first_pos(pool, s), last = last_pos(pool, s);
        if (keep.keeps_from(first)) break;
        if (keep.keeps(first, last)) {
            spans_[kept++] = s;
            continue;
        }
        n_cells_ -= s.count;
        // What lies between this and what left before never was, or is gone too.
        const Pos before = forgotten_.empty() ? first : forgotten_.list().back().end;
        if (window) forgotten_.add({kept == 0 && before < first ? before : first, last + 1});
        release(s);
    }
    spans_.erase(spans_.begin() + static_cast<ptrdiff_t>(kept),
                 spans_.begin() + static_cast<ptrdiff_t>(i));
    if (!ordered_) sort(pool, 0);
}

void Track::relabel(PagePool& pool, Pos begin, Pos last) {
    const Span state = spans_.back();
    pool.hold(state.page, state.end());
    release(pool);
    spans_ = {state};
    n_cells_ = state.count;
    spans_[0].delta = last - pool.pos(state.page, state.first);
    begin_ = begin;
}

void Track::divide_forgotten(Range range, int32_t divisor) {
    forgotten_.move(range, [&](Range r) {
        return Range{r.begin / divisor, (r.end - 1) / divisor + 1};
    });
}

void Track::rewrite(PagePool& pool, Range range, const Rewrite& rewrite) {
    cut(pool, range.begin);
    cut(pool, range.end);
    std::vector<Span> spans;
    spans.reserve(spans_.size());
    for (const Span& s : spans_) {
        if (range.contains(first_pos(pool, s))) {
            rewrite(s, spans);
        } else {
            spans.push_back(s);
        }
    }
    spans_ = std::move(spans);
    sort(pool, 0);
}

void Track::replace(PagePool& pool, std::vector<Span> spans, Ranges forgotten, Pos begin) {
    for (const Span& s : spans)
        pool.hold(s.page, s.end());
    release(pool);
    spans_ = std::move(spans);
    forgotten_ = std::move(forgotten);
    begin_ = begin;
    for (const Span& s : spans_)
        n_cells_ += s.count;
    sort(pool, 0);
}

bool Track::joins(const PagePool& pool, size_t at) const {
    return at == 0 || at >= spans_.size() ||
           last_pos(pool, spans_[at - 1]) <= first_pos(pool, spans_[at]);
}

size_t Track::find(const PagePool& pool, Pos p) const {
    if (!ordered_ || p <= 0) return 0;
    // Newest first: people rewind and extend the end of a sequence, so the answer is nearly always
    // the last span or none.
    if (spans_.empty() || last_pos(pool, spans_.back()) < p) return spans_.size();
    const auto at = std::lower_bound(spans_.begin(), spans_.end(), p,
                                     [&](const Span& s, Pos x) { return last_pos(pool, s) < x; });
    return static_cast<size_t>(at - spans_.begin());
}

// Makes a border at `p`: afterwards no span holds positions on both sides of it.
void Track::cut(PagePool& pool, Pos p) {
    for (size_t i = find(pool, p); i < spans_.size(); i++) {
        const Span s = spans_[i];
        if (first_pos(pool, s) >= p) break;
        const uint32_t left = span_cells_before(pool, s, p);
        if (left == s.count) continue;
        pool.hold(s.page, s.first + left);
        spans_[i].count = static_cast<uint16_t>(left);
        const Span right{s.page, static_cast<uint16_t>(s.first + left),
                         static_cast<uint16_t>(s.count - left), s.delta};
        spans_.insert(spans_.begin() + static_cast<ptrdiff_t>(i) + 1, right);
        if (ordered_) break;
        i++;
    }
    if (!ordered_) sort(pool, 0);
}

// Puts spans from `first` on in order of their first positions and learns whether any lie over
// each other. Nearly always they stand in order already, and only that is checked.
void Track::sort(const PagePool& pool, size_t first) {
    const auto begin = spans_.begin() + static_cast<ptrdiff_t>(first);
    const auto before = [&](const Span& a, const Span& b) {
        return first_pos(pool, a) < first_pos(pool, b);
    };
    if (!std::is_sorted(begin, spans_.end(), before)) {
        std::stable_sort(spans_.begin(), spans_.end(), before);
        first = 0;
    }
    ordered_ = true;
    for (size_t i = first + 1; i < spans_.size() && ordered_; i++)
        ordered_ = last_pos(pool, spans_[i - 1]) <= first_pos(pool, spans_[i]);
}

}  // namespace cellar
