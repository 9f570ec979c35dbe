// What Cells answers to verbs that would leave a sequence where its windows or states are not kept.

#include <fmt/format.h>

#include <algorithm>

#include "cells/cells.h"

namespace cellar {
namespace {

bool overlap(Range a, Range b) {
    return a.begin < b.end && b.begin < a.end;
}

bool covers(Range outer, Range inner) {
    return outer.begin <= inner.begin && inner.end <= outer.end;
}

// The positions of the tokens that a recurrent track's current state has taken up.
Range taken_up(const Track& track, const PagePool& pool) {
    if (track.empty()) return {};
    return {track.begin(), track.pos_max(pool) + 1};
}

}  // namespace

// Whether the group has what a sequence needs to go on at `end`, with all that it held before.
Result<void> Cells::check_end(SeqId seq, uint32_t group, Pos end) const {
    const Track& track = find(seq)->tracks[group];
    if (end <= 0 || !lets_go(group)) return {};
    if (kinds_[group].is_recurrent()) {
        if (end <= track.begin() || track.has_state_before(pools_[group], end)) return {};
        return fail(Code::kForgotten,
                    fmt::format("sequence {} cannot end at position {}: no state of the tokens "
                                "before it is kept",
                                value(seq), end));
    }
    // Where the sequence would go on: behind its last token before the end, held or not.
    Ranges before;
    before.add_from(track.forgotten(), {0, end});
    if (before.empty()) return {};
    const Pos last =
        std::max(track.pos_max_before(pools_[group], end), before.list().back().end - 1);
    const Range needed = kinds_[group].carries(last);
    if (!before.intersects(needed)) return {};
    return fail(Code::kForgotten,
                fmt::format("sequence {} cannot end at position {}: its window from {} on is not "
                            "kept any more",
                            value(seq), end, needed.begin));
}

Result<void> Cells::check_rm(SeqId seq, Range range) const {
    const Sequence& sequence = *find(seq);
    for (uint32_t g = 0; g < n_groups(); g++) {
        const Track& track = sequence.tracks[g];
        if (!lets_go(g) || track.empty()) continue;
        const Pos last = track.pos_max(pools_[g]);
        if (range.begin > last) continue;
        if (range.end > last) {
            if (auto ok = check_end(seq, g, range.begin); !ok) return ok;
            continue;
        }
        if (!kinds_[g].is_recurrent()) continue;
        if (!overlap(range, taken_up(track, pools_[g]))) continue;
        return fail(Code::kUnsupported,
                    fmt::format("positions {} to {} of sequence {} cannot be taken out of a state "
                                "that has gone on to {}",
                                range.begin, range.end - 1, value(seq), last));
    }
    return {};
}

// Whether the window at the end of what `to` will see is whole: neither sequence's part of it may
// have left.
Result<void> Cells::check_copied_window(SeqId from, SeqId to, uint32_t group, Range range) const {
    static const Track kNothing;
    const Sequence* copied_from = find(from);
    const Sequence* copied_to = find(to);
    const Track& source = copied_from == nullptr ? kNothing : copied_from->tracks[group];
    const Track& target = copied_to == nullptr ? kNothing : copied_to->tracks[group];
    const PagePool& pool = pools_[group];
    Ranges forgotten = target.forgotten();
    forgotten.subtract(range);
    forgotten.add_from(source.forgotten(), range);
    // Where the target will end, counting what is forgotten there too.
    Pos last = target.pos_max(pool);
    if (last < range.end) {
        const Pos copied = source.pos_max_before(pool, range.end);
        last =
            std::max(target.pos_max_before(pool, range.begin), copied >= range.begin ? copied : -1);
        if (!forgotten.empty()) last = std::max(last, forgotten.list().back().end - 1);
    }
    if (last < 0) return {};
    const Range needed = kinds_[group].carries(last);
    if (!forgotten.intersects(needed)) return {};
    return fail(Code::kForgotten,
                fmt::format("sequence {} cannot share positions {} to {} with {}: of the window "
                            "from {} on, some is not kept any more",
                            value(from), range.begin, last, value(to), needed.begin));
}

// Whether the window at the sequence's end is still whole after a shift. Where positions move by
// themselves it may reach back to cells that have left, and blocks begin elsewhere.
Result<void> Cells::check_shifted_window(SeqId seq, uint32_t group, Range range, Pos delta) const {
    const Track& track = find(seq)->tracks[group];
    if (track.empty() || track.forgotten().empty()) return {};
    const PagePool& pool = pools_[group];
    Ranges forgotten = track.forgotten();
    forgotten.move(range, [&](Range r) { return moved(r, delta); });
    const Pos inside = track.pos_max_before(pool, range.end);
    Pos last = inside >= range.begin ? inside + delta : -1;
    const Pos newest = track.pos_max(pool);
    if (!range.contains(newest)) last = std::max(last, newest);
    last = std::max(last, track.pos_max_before(pool, range.begin));
    if (!forgotten.empty()) last = std::max(last, forgotten.list().back().end - 1);
    const Range needed = kinds_[group].carries(std::max(last, 0));
    if (!forgotten.intersects(needed)) return {};
    return fail(Code::kForgotten,
                fmt::format("positions of sequence {} cannot move by {}: its window would reach "
                            "back to {}, where not all is kept any more",
                            value(seq), delta, needed.begin));
}

Result<void> Cells::check_cp(SeqId from, SeqId to, Range range) const {
    const Sequence* source = find(from);
    const Sequence* target = find(to);
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (!lets_go(g)) continue;
        if (!kinds_[g].is_recurrent()) {
            if (auto ok = check_copied_window(from, to, g, range); !ok) return ok;
            continue;
        }
        const Range taken = source == nullptr ? Range() : taken_up(source->tracks[g], pools_[g]);
        const Pos end = std::min(range.end, taken.end);
        if (source != nullptr && range.begin < end)
            if (auto ok = check_end(from, g, end); !ok) return ok;
        const bool part = overlap(range, taken) && range.begin > taken.begin;
        const Range kept = target == nullptr ? Range() : taken_up(target->tracks[g], pools_[g]);
        const bool joins = !kept.empty() && !covers(range, kept) &&
                           (overlap(range, taken) || overlap(range, kept));
        if (part || joins)
            return fail(Code::kUnsupported,
                        fmt::format("positions from {} of sequence {} cannot be shared with {}: a "
                                    "state has no parts",
                                    range.begin, value(from), value(to)));
    }
    return {};
}

// Shifts and divisions: all that a state has taken up, or nothing of it.
Result<void> Cells::check_whole_states(SeqId seq, Range range) const {
    const Sequence& sequence = *find(seq);
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (!kinds_[g].is_recurrent()) continue;
        const Range taken = taken_up(sequence.tracks[g], pools_[g]);
        if (!overlap(range, taken) || covers(range, taken)) continue;
        return fail(Code::kUnsupported,
                    fmt::format("positions from {} of sequence {} cannot be moved by themselves: "
                                "its state has taken up {} to {}",
                                range.begin, value(seq), taken.begin, taken.end - 1));
    }
    return {};
}

}  // namespace cellar
