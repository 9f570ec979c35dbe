#pragma once

#include <string>

#include "memory/memory.h"

namespace cellar {

// A hash of all that a sequence sees: positions, keys, values and states, over all groups and
// layers, 32 hexadecimal digits. Where cells stand, in which order and whom they are shared with
// does not enter. O(bytes seen).
std::string hash_seen(const Memory& memory, SeqId seq);

}  // namespace cellar
