#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "cells/cells.h"
#include "cells/plan.h"

namespace cellar {

// Neighbouring rows of the pool, all of which a sequence sees moved by the same delta.
struct RowRun {
    uint32_t row = 0;
    uint32_t count = 0;
    Pos delta = 0;

    uint32_t end() const { return row + count; }
};

// The items of a ubatch that extend the same sequences, and what they can see in one group. A
// column is a cell's place in `runs`, counted over all of them.
struct Lane {
    // An item sees the columns [begin, end).
    struct Query {
        uint32_t item = 0;  // of the ubatch
        uint32_t begin = 0;
        uint32_t end = 0;
        Pos pos = 0;
    };

    std::span<const SeqId> seqs;
    std::vector<Query> queries;  // in order of the ubatch
    std::vector<RowRun> runs;    // in order of position
    uint32_t n_columns = 0;      // cells in `runs`
};

// The lanes of a ubatch that is about to be computed, in order of their first items: what its
// sequences hold now, and the cells that it writes itself. O(items + spans), and with a
// window besides O(cells that it shows).
std::vector<Lane> find_lanes(const Cells& cells, const UbatchPlan& ubatch, uint32_t group);

}  // namespace cellar
