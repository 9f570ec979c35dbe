#pragma once

#include <cstdint>

#include "base/error.h"
#include "memory/memory.h"
#include "memory/pool.h"

namespace cellar {

// What a config comes to: of a memory with groups 0 .. n_groups - 1.

// Cells of a group's pool, where full groups have n_cells.
uint32_t cells_of(const MemoryConfig& config, uint32_t group);

// A group's pool, its cells in whole pages; sizes that make no sense are left to whoever makes it.
PoolConfig pool_config(const MemoryConfig& config, uint32_t group);

// Cells of each full group's pool, in whole pages: n_cells, or the fewest with which all pools come
// to budget_bytes. Errors: kInvalidArgument for both or neither, for a budget that states alone
// use up and for one of more cells than can be numbered; as Pool::create for its layers.
Result<uint32_t> resolve_cells(const MemoryConfig& config, uint32_t n_groups);

// What one checkpoint keeps alive at most: a state of every recurrent layer, and a window of every
// sliding one.
Result<uint64_t> checkpoint_cost(const MemoryConfig& config, uint32_t n_groups);

}  // namespace cellar
