#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "cells/batch.h"
#include "cells/cells.h"
#include "cells/departures.h"
#include "cells/plan.h"

namespace cellar {

// One run of `Cells::prepare`: judges a batch, cuts it into ubatches and claims their cells, as if
// each ubatch had been committed before the next. What it claims belongs to the plan that it
// returns; if it fails, the plan's end returns everything.
class Planner {
public:
    Planner(Cells& cells, const Batch& batch, const SplitOptions& options)
        : cells_(cells), batch_(batch), options_(options) {}

    Result<Plan> run();

private:
    // Where a sequence's next cell would go in one group.
    struct Tail {
        PageId page = kNoPage;  // of the last span; kNoPage when there is none
        uint32_t first = 0;     // the last span's
        uint32_t end = 0;
        Pos delta = 0;
        uint32_t written = kBefore;        // the ubatch that writes its newest cell
        bool imaginary = false;            // the pool had no page left; only counted
        uint32_t departure = Plan::kNone;  // of a page that the plan does not hold yet
    };

    // A sequence of the batch, as it will be after the items planned so far.
    struct Grower {
        SeqId id{0};
        Pos last = -1;
        uint32_t newest_item = UINT32_MAX;
        uint32_t n_items = 0;
        std::vector<Tail> tails;              // by group
        Pos first = -1;                       // of its items in the batch
        Pos planned = -1;                     // of those in ubatches that are planned
        std::vector<Checkpoint> checkpoints;  // as they will be then
    };

    static constexpr uint32_t kBefore = UINT32_MAX;

    tl::unexpected<Error> no_room() const;
    Result<void> read_items();
    Result<void> read_item(uint32_t item);
    Result<void> read_position(uint32_t item);
    Result<void> check_coupled(uint32_t item) const;
    Result<void> check_maximum() const;
    Result<void> check_splitting() const;
    Result<void> mark_checkpoints();
    SplitOptions splitting() const;
    uint32_t grower_of(SeqId id);

    void plan_ubatch(Plan& plan, std::vector<uint32_t> items);
    void claim_run(Plan& plan, UbatchPlan& ubatch, uint32_t group, const UbatchRun& run);
    void claim_cells(Plan& plan, UbatchPlan& ubatch, uint32_t group, const UbatchRun& run,
                     uint32_t skipped);
    void plan_departures(Plan& plan, UbatchPlan& ubatch);
    void note(uint32_t group, std::span<const uint32_t> set, const Span& grown, bool copied,
              Pos first, Pos last);
    bool can_append(uint32_t group, const Tail& tail) const;
    bool open_page(Plan& plan, UbatchGroup& out, uint32_t group, SeqId seq, Tail& tail);
    std::optional<PageId> take_page(Plan& plan, uint32_t group, SeqId seq, Tail& tail);

    Cells& cells_;
    const Batch& batch_;
    const SplitOptions& options_;
    ItemSets sets_;
    std::vector<Grower> growers_;
    std::unordered_map<int32_t, uint32_t> grower_index_;
    std::vector<Pos> positions_;     // [n_items * n_pos], next positions resolved
    std::vector<uint32_t> taken_;    // by group: pages that this plan took
    std::vector<uint32_t> missing_;  // by group: pages that the pool did not have
    std::vector<std::unique_ptr<Departures>> departures_;  // by group; null where nothing leaves
};

}  // namespace cellar
