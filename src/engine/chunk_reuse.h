#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "engine/common_runs.h"
#include "memory/memory.h"

namespace cellar {

// Text that is used again where it stands now: what a new prompt has in common with a sequence is
// forked, shaped (what lies between is removed, what stands elsewhere moved), and taken back piece
// by piece while the tokens between are computed. A memory takes tokens behind all others only, so
// a run stays on the fork until what comes before it is there. An approximation: a moved token was
// computed behind other text than it stands behind now.

// Runs that one prompt moves at most, and places where the cells of a sequence may not follow on
// each other that come of it.
inline constexpr uint32_t kReuseJoints = 4;

// Pages that a text with so many joints can need beyond those of its tokens in a row: cells lie
// unused on both sides of each joint, and a copied page leaves the old one a step later.
inline constexpr uint32_t kReusePages = 2 * kReuseJoints + 1;

// Makes `fork`, which holds nothing, what `runs` keep of `seq`, each where its `to` says. `runs`
// are in order of both texts and do not lie over each other. O(spans) for each run; copies nothing,
// but may leave moves pending (Memory::seq_add). Errors: those of seq_cp, seq_rm and seq_add, when
// windows or states do not allow it or there is no room: `fork` holds nothing then, and `seq` is as
// it was in any case.
Result<void> fork_runs(Memory& memory, SeqId seq, SeqId fork, std::span<const CommonRun> runs);

// In how many places the cells of a sequence do not follow on each other, or its first does not
// begin a page, in the group with most, once what is missing between `runs` is computed. O(spans).
uint32_t joints(const Memory& memory, SeqId seq, std::span<const CommonRun> runs);

}  // namespace cellar
