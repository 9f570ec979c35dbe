#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <span>
#include <vector>

#include "cells/cell_move.h"
#include "memory/memory.h"
#include "model/model.h"

namespace cellar {

// How many of the first moves, all of one group, one TurnGraph does: none of them reads a page that
// one before it writes, nor writes the same cells, and together they have at most some thousands of
// cells, or are a single one.
size_t moves_at_once(std::span<const CellMove> moves);

// The graph that turns the keys of copied cells in all layers of a group, in place: through f32
// from the position of each move's source to that of its target. Keys that layers share are turned
// once, by the layer that keeps them. Running it twice turns twice.
class TurnGraph {
public:
    // `moves`: of one group, copied; those that do not turn are passed over.
    TurnGraph(const Model& model, const Memory& memory, std::span<const CellMove> moves);

    bool empty() const;  // no key turns
    ggml_cgraph* graph() const { return graph_; }

    // Once the graph is allocated, before it is run.
    void set_inputs() const;

private:
    void list_cells(const Memory& memory, std::span<const CellMove> moves);
    void turn_layer(ggml_tensor* pool, uint32_t n_head_kv, const Rope& rope);

    std::vector<int32_t> rows_;    // of the pool, cells that turn
    std::vector<int32_t> deltas_;  // by cell
    ggml_context_ptr ctx_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* rows_in_ = nullptr;    // i32 [n], for ggml_get_rows
    ggml_tensor* rows_out_ = nullptr;   // i64 [n], for ggml_set_rows
    ggml_tensor* deltas_in_ = nullptr;  // i32 [n]
};

}  // namespace cellar
