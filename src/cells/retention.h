#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "cells/group_kind.h"

namespace cellar {

// A position after which a sequence's windows and states are kept: it can go back there.
struct Checkpoint {
    Pos pos = 0;          // of the last token that they have taken up
    uint64_t serial = 0;  // counts up over all checkpoints ever made: the smallest is the oldest

    friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Adds a checkpoint to a list of ascending positions, or renews the one that stands there; beyond
// `most` of them the oldest goes. Returns by how many the list grew, and if one went.
struct Kept {
    bool added = false;
    bool dropped = false;
};
Kept keep_checkpoint(std::vector<Checkpoint>& list, const Checkpoint& checkpoint, size_t most);

// What a group keeps of a sequence: all that its next token needs, the same for each of its newest
// tokens that may be taken back, and for each checkpoint.
class Retention {
public:
    // `newest`: the sequence's last position; `n_rollback`: tokens that may be taken back.
    // `checkpoints` must live as long as this.
    Retention(GroupKind kind, Pos newest, uint32_t n_rollback,
              std::span<const Checkpoint> checkpoints)
        : kind_(kind), checkpoints_(checkpoints) {
        const int64_t oldest = int64_t{newest} - n_rollback;
        if (oldest > 0) tail_ = kind.carries(static_cast<Pos>(oldest)).begin;
    }

    // Whether all from `first` on is kept.
    bool keeps_from(Pos first) const { return first >= tail_; }

    // Whether any of the positions from `first` to `last` is kept. O(checkpoints), but O(1) for
    // those that stand at the sequence's end.
    bool keeps(Pos first, Pos last) const {
        if (last >= tail_) return true;
        for (const Checkpoint& checkpoint : checkpoints_) {
            const Range kept = kind_.carries(checkpoint.pos);
            if (first < kept.end && kept.begin <= last) return true;
        }
        return false;
    }

private:
    const GroupKind kind_;
    const std::span<const Checkpoint> checkpoints_;
    Pos tail_ = 0;  // all from here on is kept
};

}  // namespace cellar
