#pragma once

#include <cstdint>
#include <vector>

#include "memory/memory.h"

namespace cellar::testing {

// By row of the group's pool, without the zero row: does a sequence see the cell, is a pending move
// to copy it, or does anything but a sequence hold its page?
std::vector<bool> owned_cells(const Memory& memory, uint32_t group);

// Fills the K and V of every cell that is not owned with bytes that are NaN in every type. The zero
// row stays zero. Call it while no plan is open. Commits the whole pool: for small memories.
void poison(Memory& memory);

}  // namespace cellar::testing
