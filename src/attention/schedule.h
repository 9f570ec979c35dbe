#pragma once

#include <cstdint>
#include <vector>

#include "cells/cells.h"
#include "cells/plan.h"

namespace cellar {

// What one ubatch attends to in one group, for the graph path: each stream is a block of queries
// that share one list of rows of the pool. Streams have equal sizes, so one tensor holds them all.
//
// A column is a place in a stream's list of rows: what a key is to a query of that stream.
struct Schedule {
    // Neighbouring columns, in order of position, and what their keys' positions are moved by.
    struct Piece {
        uint32_t column = 0;
        uint32_t count = 0;
        Pos delta = 0;
    };

    // What the queries of one set of sequences can see: pieces in order of position.
    struct View {
        uint32_t stream = 0;
        uint32_t first_piece = 0;
        uint32_t n_pieces = 0;
    };

    // A query sees the columns [begin, end) of its view, counted over the view's pieces.
    struct Query {
        uint32_t view = 0;
        uint32_t begin = 0;
        uint32_t end = 0;
        Pos pos = 0;
    };

    uint32_t n_tokens = 0;   // items of the ubatch
    uint32_t n_streams = 1;  // 1 (all sequences together) or one for each set of sequences
    uint32_t length = 0;     // columns of a stream, padding included: a length class
    bool in_order = true;    // `order` counts up from 0

    std::vector<uint32_t> order;  // [n_tokens] items of the ubatch, stream by stream
    std::vector<Query> queries;   // [n_tokens] in the order of `order`
    std::vector<View> views;
    std::vector<Piece> pieces;
    std::vector<int32_t> rows;   // [n_streams * length] of the pool; padding is its zero row
    std::vector<Pos> positions;  // [n_streams * length] that keys were encoded with; of padding: 0
    std::vector<Pos> turns;      // [n_streams * length] deltas; empty when all are 0

    uint64_t attended_cells = 0;  // over queries: the cells that each sees (its own included)
    uint64_t read_cells = 0;      // distinct cells that any query sees, however moved
};

// The schedule of a ubatch that is about to be computed: what its sequences hold now, and the cells
// that it writes itself. O(items + rows + n log n in the spans).
Schedule make_schedule(const Cells& cells, const UbatchPlan& ubatch, uint32_t group);

// Columns rounded up, so that steps of nearly equal lengths share a graph.
uint32_t length_class(uint32_t n_columns);

}  // namespace cellar
