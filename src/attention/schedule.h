#pragma once

#include <cstdint>
#include <vector>

#include "cells/cells.h"
#include "cells/plan.h"

namespace cellar {

// What one ubatch attends to in one group, for the graph path: each stream is a block of queries
// that share one list of gathered rows. Streams have equal sizes, so that one tensor holds them all.
struct Schedule {
    uint32_t n_tokens = 0;   // items of the ubatch
    uint32_t n_streams = 1;  // 1 (all sequences together) or one a sequence
    uint32_t length = 0;     // rows gathered for a stream, padding included: a length class
    std::vector<uint32_t> order;  // [n_tokens] items of the ubatch, stream by stream
    std::vector<int32_t> rows;    // [n_streams * length] rows of the pool; padding is the zero row
    std::vector<uint8_t> visible; // [n_tokens * length] in the order of `order`: may it see the row?

    uint64_t attended_cells = 0;  // over queries: the cells that each sees (its own included)
    uint64_t read_cells = 0;      // distinct cells that any query sees
};

// The schedule of a ubatch that is about to be computed: what its sequences hold now, and the cells
// that it writes itself. O(cells its sequences see * their queries).
Schedule make_schedule(const Cells& cells, const UbatchPlan& ubatch, uint32_t group);

}  // namespace cellar
