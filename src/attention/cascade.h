#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/lanes.h"
#include "attention/tile.h"
#include "base/types.h"
#include "cells/cells.h"
#include "cells/plan.h"

namespace cellar {

// What one ubatch attends to in one group, for the kernel: segments of columns, each with the
// queries that see some of it. A prompt that many sequences share is one segment for all of their
// queries, and what is private to a sequence another: levels of a cascade, whose sums are merged.
struct Cascade {
    // Columns that the same lanes see one after another.
    struct Segment {
        uint32_t first_run = 0;  // of `runs`
        uint32_t n_runs = 0;
        uint32_t first_query = 0;  // of `queries`
        uint32_t n_queries = 0;
        uint32_t first_column = 0;  // counted over all segments
        uint32_t n_columns = 0;
    };

    // A query that keys have moved for since they were encoded: turning the query back by as much
    // gives the same scores.
    struct Turned {
        uint32_t item = 0;
        Pos delta = 0;
    };

    // Where a segment meets a query of an item.
    struct Part {
        uint32_t segment = 0;
        uint32_t query = 0;  // of the segment
    };

    std::span<const RowRun> runs_of(const Segment& segment) const {
        return std::span(runs).subspan(segment.first_run, segment.n_runs);
    }
    std::span<const TileQuery> queries_of(const Segment& segment) const {
        return std::span(queries).subspan(segment.first_query, segment.n_queries);
    }
    std::span<const Part> parts_of(uint32_t item) const {
        return std::span(parts).subspan(first_part[item], first_part[item + 1] - first_part[item]);
    }

    uint32_t n_tokens = 0;   // items of the ubatch
    uint32_t n_columns = 0;  // of all segments
    std::vector<Segment> segments;
    std::vector<RowRun> runs;        // their deltas mean nothing here: queries have them
    std::vector<TileQuery> queries;  // `row`: an item, or n_tokens + an index into `turned`
    std::vector<Turned> turned;
    std::vector<uint32_t> first_part;  // [n_tokens + 1] of `parts`
    std::vector<Part> parts;           // by item, in the order of segments

    uint64_t attended_cells = 0;  // over queries: the cells that each sees (its own included)
    uint64_t read_cells = 0;      // distinct cells that any query sees, however moved
};

// The cascade of a ubatch that is about to be computed: what its sequences hold now, and the cells
// that it writes itself. Without `share` every lane reads all of its cells for itself.
// O(items + n log n in the spans).
Cascade make_cascade(const Cells& cells, const UbatchPlan& ubatch, uint32_t group,
                     bool share = true);

}  // namespace cellar
