#pragma once

#include <cstdint>

#include "memory/memory.h"

namespace cellar::testing {

// A hash of all that a sequence sees: positions and the bytes of K and V, in order of position,
// over all groups and layers. Where the cells stand does not enter: whatever is done to others, and
// however cells move, it must not change.
uint64_t seen_hash(const Memory& memory, SeqId seq);

}  // namespace cellar::testing
