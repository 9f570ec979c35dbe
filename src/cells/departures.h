#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cells/cells.h"
#include "cells/plan.h"
#include "cells/retention.h"

namespace cellar {

// While a batch is planned: the pages of one group that will leave their sequences as the plan's
// ubatches are committed, one after the other, and that later ubatches can take. It walks ahead
// what Cells::commit will do, on lists of its own.
class Departures {
public:
    Departures(const Cells& cells, uint32_t group)
        : cells_(cells), pool_(cells.pool(group)), group_(group) {}

    // A sequence of the batch, numbered 0.., by what it holds now. O(spans).
    void add_sequence(SeqId seq);

    // A page that the plan takes; without one, a number that stands for a page that is missing.
    PageId open(std::optional<PageId> page);
    // How far the plan has filled a page that it opened.
    uint32_t end(PageId page) const { return ends_.at(value(page)); }

    bool is_missing(PageId page) const { return value(page) >= pool_.n_pages(); }

    // As Track::move_tail and Track::append will do it. `first` and `last` are the positions of
    // the grown cells. Pages that tails moved from are not counted on: whoever shares them decides.
    void move_tail(uint32_t sequence, PageId page);
    void append(uint32_t sequence, const Span& grown, Pos first, Pos last);

    // As Track::expire, when ubatch `ubatch` is committed.
    void expire(Plan& plan, size_t ubatch, uint32_t sequence, const Retention& keep);

    // A page that has left every sequence before `ubatch`, as an index of plan.departures_.
    std::optional<uint32_t> take(Plan& plan, size_t ubatch);

private:
    struct Kept {
        Span span;
        Pos first = 0;
        Pos last = 0;
    };

    uint32_t& holders(PageId page);
    void let_go(Plan& plan, size_t ubatch, PageId page);

    const Cells& cells_;
    const PagePool& pool_;
    const uint32_t group_;
    std::vector<std::vector<Kept>> kept_;             // by sequence
    std::unordered_map<uint32_t, uint32_t> holders_;  // by page: those that will be left
    std::unordered_map<uint32_t, uint32_t> ends_;     // by page that the plan opened
    uint32_t n_missing_ = 0;
    std::deque<uint32_t> free_;  // departures that nobody took, oldest first
};

}  // namespace cellar
