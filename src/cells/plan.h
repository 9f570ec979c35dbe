#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "cells/cell_move.h"
#include "cells/span.h"

namespace cellar {

class Cells;

// Neighbouring items of a ubatch that extend the same sequences.
struct UbatchRun {
    std::span<const SeqId> seqs;  // never empty; all of them see the same earlier cells
    uint32_t first = 0;           // of UbatchPlan::items
    uint32_t count = 0;
};

// Where one ubatch's tokens go in one group.
struct UbatchGroup {
    std::vector<uint32_t> cells;   // [n_items] page * page_size + offset, in the order of items
    std::vector<CellCopy> copies;  // due before the graph runs
};

// What one graph computes: which items, at which positions, into which cells.
struct UbatchPlan {
    UbatchPlan() = default;
    UbatchPlan(UbatchPlan&&) = default;
    UbatchPlan& operator=(UbatchPlan&&) = default;

    std::vector<uint32_t> items;      // [n_items] indices into the batch
    std::vector<Pos> positions;       // [n_items * n_pos]
    std::vector<UbatchRun> runs;      // in the order of items
    std::vector<UbatchGroup> groups;  // [n_groups]
    std::vector<SeqId> seq_ids;       // what the runs' `seqs` point into
};

// The outcome of `prepare`: room for a whole batch, claimed but visible to nobody. Each ubatch is
// computed and then committed, in order; dropping or cancelling the plan returns what was not
// committed. One plan is open at a time, and its Cells must outlive it.
class Plan {
public:
    Plan(Plan&& other) noexcept;
    Plan& operator=(Plan&& other) noexcept;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() { cancel(); }

    size_t size() const { return ubatches_.size(); }
    const UbatchPlan& ubatch(size_t i) const { return ubatches_[i]; }
    size_t committed() const { return committed_; }

    // False once all ubatches are committed, or the plan was cancelled or moved from.
    bool open() const { return cells_ != nullptr; }

    // Returns the claims of all ubatches that were not committed. Again: does nothing.
    void cancel();

private:
    friend class Cells;
    friend class Planner;

    // How a sequence's spans change in one group when its ubatch is committed.
    struct Change {
        uint32_t ubatch = 0;
        uint32_t group = 0;
        SeqId seq{0};
        Span grown;               // cells appended, all in one page
        bool moves_tail = false;  // the last span's cells were copied to the start of grown.page
        bool fresh = false;       // the plan holds grown.page, with end 0, until this is committed
    };

    Plan() = default;

    Cells* cells_ = nullptr;
    uint64_t serial_ = 0;  // which of the Cells' plans this is
    size_t committed_ = 0;
    std::vector<UbatchPlan> ubatches_;
    std::vector<Change> changes_;  // in commit order
    size_t next_change_ = 0;       // the first of changes_ that is not committed
};

}  // namespace cellar
