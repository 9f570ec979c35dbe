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
    // Rows of the pool, page * page_size + offset. [n_items] in the order of items; of a recurrent
    // group [n_runs * n_states], the states after each of the run's last n_states items.
    std::vector<uint32_t> cells;
    std::vector<CellCopy> copies;  // due before the graph runs

    // Recurrent groups: the row of the state that each run goes on from, [n_runs]; the zero row
    // for a sequence that begins.
    std::vector<uint32_t> sources;
    uint32_t n_states = 0;
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

    // Checkpoints that its commit makes.
    struct Mark {
        SeqId seq{0};
        Pos pos = 0;
    };
    std::vector<Mark> checkpoints;
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
    friend class Departures;
    friend class Planner;

    // How a sequence's spans change in one group when its ubatch is committed.
    struct Change {
        uint32_t ubatch = 0;
        uint32_t group = 0;
        SeqId seq{0};
        Span grown;               // cells appended, all in one page
        bool moves_tail = false;  // the last span's cells were copied to the start of grown.page
        bool fresh = false;       // the plan holds grown.page, with end 0, until this is committed
        uint32_t first_item = 0;  // of the ubatch: whose cells `grown` are
        Pos begin = 0;            // of a sequence that begins: the position of its first item
        uint32_t departure = kNone;  // of a fresh page that the plan does not hold from the start
    };
    static constexpr uint32_t kNone = UINT32_MAX;

    // A page that a window shows until ubatch `until` is committed; then it is free, and if a later
    // ubatch wants it, the plan's: it holds it, with end 0, as any fresh page.
    struct Departure {
        size_t until = 0;
        uint32_t group = 0;
        PageId page = kNoPage;
        bool wanted = false;
        bool held = false;
    };

    // A page has left its last window. True when the plan wants it, and holds it from now on.
    bool receive(uint32_t group, PageId page);

    Plan() = default;

    Cells* cells_ = nullptr;
    uint64_t serial_ = 0;  // which of the Cells' plans this is
    size_t committed_ = 0;
    std::vector<UbatchPlan> ubatches_;
    std::vector<Change> changes_;        // in commit order
    std::vector<Departure> departures_;  // in the order of `until`
    size_t next_change_ = 0;             // the first of changes_ that is not committed
};

}  // namespace cellar
