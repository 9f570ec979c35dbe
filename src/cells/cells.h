#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "cells/batch.h"
#include "cells/page_pool.h"
#include "cells/plan.h"
#include "cells/sequence.h"
#include "cells/span.h"

namespace cellar {

// Sizes of a memory, fixed at creation.
struct CellsConfig {
    std::vector<uint32_t> group_cells;  // cells of each group's pool, rounded up to whole pages
    uint32_t page_size = 32;            // cells a page; a power of two from 1 to 256
    uint32_t n_pos = 1;                 // components of a position; more than 1 for M-RoPE
};

// How a batch is cut into ubatches.
enum class Splitting {
    kSimple,       // in the order of the batch
    kEqual,        // the same number of items for each sequence of a ubatch
    kPerSequence,  // one sequence (or coupled set) a ubatch
};

struct PrepareOptions {
    Splitting splitting = Splitting::kSimple;
    uint32_t max_ubatch = 512;     // items in one ubatch
    bool whole_sequences = false;  // non-causal or pooled: a sequence's items stay in one ubatch
};

// The bookkeeping of an attention memory: which sequence sees which cells of which pages. It knows
// no tensor: what has to be copied is listed in plans, and whoever owns the bytes does it.
//
// Pages are shared copy-on-write: a fork costs references, and the first divergence at most one
// page copy a group. Verbs keep llama.cpp's names and conventions: ranges of positions are
// half-open, a negative begin means 0, a negative end means open, kEverySeq names all sequences. A
// range that is empty or inverted is an error (kBadRange) and a sequence that holds nothing is none.
// While a plan is open every verb answers kBusy. On error nothing has changed.
//
// Not thread-safe; no method blocks.
class Cells {
public:
    static Result<Cells> create(const CellsConfig& config);

    Cells(Cells&&) = default;
    Cells& operator=(Cells&&) = default;

    // -- Verbs ---------------------------------------------------------------------------------

    // Forgets the cells of `seq` at [p0, p1). O(spans touched); copies nothing; others keep theirs.
    Result<void> seq_rm(SeqId seq, Pos p0, Pos p1);

    // Makes `to` see, in [p0, p1), exactly what `from` sees there. Copies references only. Onto
    // itself it does nothing.
    Result<void> seq_cp(SeqId from, SeqId to, Pos p0, Pos p1);

    // Forgets every sequence and every claim to a page.
    Result<void> clear();

    // First and last position of `seq`, or -1 when it holds nothing. Over several groups the first
    // is the greatest of the groups': what can still be seen everywhere.
    Pos seq_pos_min(SeqId seq) const;
    Pos seq_pos_max(SeqId seq) const;

    // -- Batches -------------------------------------------------------------------------------

    // Reserves cells for the whole batch, or for nothing of it. Errors: kInvalidArgument or
    // kBadRange for a batch that makes no sense, kBusy while a plan is open, kNoRoom with the
    // numbers of the group that lacks most. O(items + spans of the sequences' last pages).
    Result<Plan> prepare(const Batch& batch, const PrepareOptions& options);

    // Makes ubatch `i` of the plan visible. Ubatches commit once and in order. Errors: kStale for a
    // plan that is finished, cancelled, moved from or of another Cells; kBadRange for another `i`.
    Result<void> commit(Plan& plan, size_t i);

    // -- Looking -------------------------------------------------------------------------------

    uint32_t page_size() const { return page_size_; }
    uint32_t n_pos() const { return n_pos_; }
    uint32_t n_groups() const { return static_cast<uint32_t>(pools_.size()); }
    const PagePool& pool(uint32_t group) const { return pools_[group]; }

    // What `seq` sees in a group: spans in order of position, empty when it holds nothing. Valid
    // until the next verb or commit.
    std::span<const Span> spans(SeqId seq, uint32_t group) const;
    uint32_t n_cells(SeqId seq, uint32_t group) const;

    // The position of cell `offset` of a page for the holder of a span with this delta.
    Pos pos(uint32_t group, const Span& span, uint32_t index) const {
        return pools_[group].pos(span.page, span.first + index) + span.delta;
    }

    // Ids of all sequences that hold something, ascending. O(sequences).
    std::vector<SeqId> sequences() const;

private:
    friend class Plan;
    friend class Planner;
    friend class Audit;

    Cells() = default;
};

}  // namespace cellar
