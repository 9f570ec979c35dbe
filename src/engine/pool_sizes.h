#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/memory.h"

namespace cellar {

// How large the pools of those groups must be whose cells leave their sequences by themselves, when
// it is known how many sequences there will be; and how many sequences such pools are enough for.
// Of a config they read page_size, n_rollback, max_checkpoints and max_ubatch.

// Pages of a sliding group that a sequence stands on at most between two ubatches: n cells in a row
// touch (n - 1) / page_size + 1 pages, rounded up, wherever they begin. Its newest tokens are
// window - 1 + n_rollback cells (Retention), and each checkpoint is window - 1 of its own. `spare`:
// pages that cells not in a row may touch besides, see DecoderOptions::spare_pages.
uint64_t pages_at_rest(const MemoryConfig& config, uint32_t window, uint32_t spare);

// Cells of a sliding group's pool, whole pages, that no ubatch of `n_sequences` sequences ever
// finds full: what all of them stand on at rest, and the pages that max_ubatch new cells open when
// they are spread over the sequences as badly as can be, before old ones leave. For one sequence it
// is at most window + n_rollback + max_ubatch and two pages, and no more than that for each of
// several. The greatest number where it would be more.
uint32_t sliding_cells(const MemoryConfig& config, uint32_t window, uint32_t n_sequences,
                       uint32_t spare);

// States of a recurrent group that a sequence takes at most: n_rollback + 1 and its checkpoints at
// rest, and in a step n_rollback + 1 new ones beside those.
uint64_t sequence_states(const MemoryConfig& config);

// Gives the pools of such groups what `n_sequences` sequences need: sliding ones, unless windows
// are kept, and recurrent ones if n_states is 0. 0 sequences: changes nothing.
void size_pools(MemoryConfig& config, uint32_t n_sequences, uint32_t spare);

// Whether a sliding group's pool is smaller than n_cells: sequences can fill it that do not fill
// those of full groups.
bool has_small_pools(const MemoryConfig& config);

// Sequences of any length that there is room for beside each other, as far as windows and states
// go: n_sequences (0: no limit), or as many as the states are enough for.
size_t texts_that_fit(const MemoryConfig& config, uint32_t n_sequences);

}  // namespace cellar
