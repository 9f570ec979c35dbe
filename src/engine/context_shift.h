#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/types.h"
#include "memory/memory.h"

namespace cellar {

// Texts that outlive their context: of what they hold, the first `keep` tokens stay, the older half
// of the rest goes, and what is left moves down behind the first ones.

// Pages that a text which was shifted can need beyond those of its tokens in a row: cells lie
// unused behind the first tokens, and on both sides of where the rest was cut.
inline constexpr uint32_t kShiftPages = 2;

// How many of `held` tokens go for `most` to be left: half of those behind the first `keep`, more
// than once if it takes that; none if they are not too many. Nothing if it cannot be: `most` is
// less than `keep`. O(log held).
std::optional<size_t> tokens_to_drop(size_t held, size_t keep, size_t most);

// Drops the tokens [keep, keep + n) of the `held` that the sequence consists of. Returns how many
// of those that are left, from the first on, it still holds: all, or fewer when the memory has no
// room to re-encode some or cannot part with those; the others must be computed again.
size_t drop_tokens(Memory& memory, SeqId seq, size_t held, size_t keep, size_t n);

// Cells of the pages that the sequence stands on, in the group that has most. States are no cells:
// one page stands for all of them, so that only what holds nothing has none. O(spans log spans).
uint64_t cells_held(const Memory& memory, SeqId seq);

}  // namespace cellar
