// What Cells keeps of sequences as they grow: checkpoints, and what leaves with windows and states.

#include <fmt/format.h>

#include <algorithm>

#include "cells/cells.h"

namespace cellar {

Result<void> Cells::checkpoint(SeqId seq) {
    if (auto ok = check_verb(seq, false); !ok) return ok;
    const Pos last = seq_pos_max(seq);
    if (last < 0)
        return fail(Code::kBadRange, fmt::format("sequence {} holds nothing to keep", value(seq)));
    if (!any_lets_go()) return {};
    if (max_checkpoints_ == 0) return fail(Code::kUnsupported, "this memory keeps no checkpoints");
    add_checkpoint(seq, last, nullptr);
    settle();
    return {};
}

void Cells::add_checkpoint(SeqId seq, Pos pos, Plan* plan) {
    if (max_checkpoints_all_ == 0) return;
    const Kept kept =
        keep_checkpoint(find(seq)->checkpoints, {pos, ++last_checkpoint_}, max_checkpoints_);
    if (kept.added && !kept.dropped) n_checkpoints_++;
    if (kept.dropped) expire(seq, plan);
    limit_checkpoints(plan);
}

// Drops the oldest of all checkpoints until there are no more than allowed.
void Cells::limit_checkpoints(Plan* plan) {
    while (n_checkpoints_ > max_checkpoints_all_) {
        SeqId oldest{0};
        uint64_t serial = UINT64_MAX;
        for (const auto& entry : sequences_)
            for (const Checkpoint& checkpoint : entry.second.checkpoints)
                if (checkpoint.serial < serial) {
                    serial = checkpoint.serial;
                    oldest = SeqId{entry.first};
                }
        std::erase_if(find(oldest)->checkpoints,
                      [&](const Checkpoint& c) { return c.serial == serial; });
        n_checkpoints_--;
        expire(oldest, plan);
    }
}

void Cells::drop_checkpoints(Sequence& sequence, Range range) {
    n_checkpoints_ -= static_cast<uint32_t>(std::erase_if(
        sequence.checkpoints, [&](const Checkpoint& c) { return range.contains(c.pos); }));
}

// Those in `range` move with their cells; what would stand below 0 is lost.
void Cells::move_checkpoints(Sequence& sequence, Range range, Pos delta) {
    std::vector<Checkpoint> moved;
    for (const Checkpoint& c : sequence.checkpoints)
        if (range.contains(c.pos) && int64_t{c.pos} + delta >= 0)
            moved.push_back({c.pos + delta, c.serial});
    drop_checkpoints(sequence, range);
    for (const Checkpoint& c : moved) {
        const Kept kept = keep_checkpoint(sequence.checkpoints, c, max_checkpoints_);
        if (kept.added && !kept.dropped) n_checkpoints_++;
    }
}

void Cells::copy_checkpoints(const Sequence& from, Sequence& to, Range range) {
    drop_checkpoints(to, range);
    for (const Checkpoint& c : from.checkpoints) {
        if (!range.contains(c.pos)) continue;
        const Kept kept = keep_checkpoint(to.checkpoints, c, max_checkpoints_);
        if (kept.added && !kept.dropped) n_checkpoints_++;
    }
}

// Drops the checkpoints that a verb has left without their window or state.
void Cells::drop_lost_checkpoints(SeqId seq) {
    Sequence& sequence = *find(seq);
    n_checkpoints_ -=
        static_cast<uint32_t>(std::erase_if(sequence.checkpoints, [&](const Checkpoint& c) {
            for (uint32_t g = 0; g < n_groups(); g++)
                if (!check_end(seq, g, c.pos + 1)) return true;
            return false;
        }));
}

// Lets go of what the sequence's windows have passed and its states have gone beyond.
void Cells::expire(SeqId seq, Plan* plan) {
    Sequence& sequence = *find(seq);
    const Pos newest = seq_pos_max(seq);
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (!lets_go(g)) continue;
        PagePool& pool = pools_[g];
        const Retention keep(kinds_[g], newest, n_rollback_, sequence.checkpoints);
        sequence.tracks[g].expire(pool, keep, kinds_[g].slides(), [&](const Span& s) {
            if (plan != nullptr && pool.holders(s.page) == 1 && plan->receive(g, s.page)) {
                pool.recycle(s.page);
            } else {
                pool.release(s.page, s.end());
            }
        });
    }
}

}  // namespace cellar
