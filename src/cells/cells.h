#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "cells/batch.h"
#include "cells/group_kind.h"
#include "cells/hold.h"
#include "cells/page_pool.h"
#include "cells/plan.h"
#include "cells/reserves.h"
#include "cells/retention.h"
#include "cells/sequence.h"
#include "cells/span.h"
#include "cells/splitter.h"

namespace cellar {

// Sizes of a memory, fixed at creation.
struct CellsConfig {
    std::vector<uint32_t> group_cells;  // cells of each group's pool, rounded up to whole pages
    uint32_t page_size = 32;            // cells a page; a power of two from 1 to 256
    uint32_t n_pos = 1;                 // components of a position; more than 1 for M-RoPE
    uint32_t max_deltas = 8;            // of one sequence in one group, before cells are re-encoded
    std::vector<GroupKind> kinds = {};  // of each group; where none is given: full
    uint32_t grow_step = 0;  // cells that pools begin with and grow by when they are full, up to
                             // group_cells; rounded up to whole pages; 0: all from the start
    bool keeps_windows = false;    // sliding groups keep every cell, whatever their queries see
    uint32_t n_rollback = 0;       // newest positions that a sequence can always take back
    uint32_t max_checkpoints = 0;  // of one sequence; at more it loses its oldest
    uint32_t max_checkpoints_all = UINT32_MAX;  // of all sequences; at more the oldest is lost
    uint32_t max_ubatch = 512;  // tokens of a step that guarantees count on (Cells::set_limits)
};

// Cells of a pool, rounded up to whole pages. Errors: kInvalidArgument for a page size that is no
// power of two from 1 to 256, for no cells or more than graphs can number, and for more than 2^26
// pages.
Result<uint32_t> whole_pages(uint32_t n_cells, uint32_t page_size);

// The bookkeeping of an attention memory: which sequence sees which cells of which pages. It knows
// no tensor: what has to be copied is listed in plans, and whoever owns the bytes does it.
//
// Pages are shared copy-on-write: a fork costs references, and the first divergence at most one
// page copy a group. Verbs keep llama.cpp's names and conventions: ranges of positions are
// half-open, a negative begin means 0, a negative end means open, kEverySeq names all sequences.
// An empty range does nothing, an inverted one is kBadRange, a sequence id below -1 is
// kInvalidArgument, and a sequence that holds nothing is no error. While a plan is open every verb
// answers kBusy. On error nothing has changed.
//
// Full groups keep every cell. Cells of a sliding group leave a sequence when its window, and that
// of its last `n_rollback` tokens, has passed them; a recurrent group keeps the states after its
// last n_rollback + 1 tokens, one pool cell each (pages of one). Both keep besides what checkpoints
// need. So not every position can be gone back to: a verb that would is kForgotten.
//
// Debug builds audit the bookkeeping (audit.h) at the end of every verb and plan, and abort on what
// they find; not for pools beyond 16 Ki pages.
//
// Not thread-safe; no method blocks. Plans point to their Cells: it must not be moved or destroyed
// while one is open.
class Cells {
public:
    static Result<Cells> create(const CellsConfig& config);

    Cells(Cells&&) = default;
    Cells& operator=(Cells&&) = default;

    // -- Verbs ---------------------------------------------------------------------------------

    // Forgets the cells of `seq` at [p0, p1). O(spans touched); copies nothing; others keep theirs.
    // Errors: kForgotten if the sequence would then end where its windows or states are no longer
    // kept, kUnsupported for what lies inside of what a state has taken up.
    Result<void> seq_rm(SeqId seq, Pos p0, Pos p1);

    // What seq_rm would answer.
    Result<void> can_rm(SeqId seq, Pos p0, Pos p1) const;

    // Makes `to` see, in [p0, p1), exactly what `from` sees there, in every group. References
    // only; onto itself it does nothing. Both must be sequences, no wildcard. Checkpoints in the
    // range come along. Errors: kForgotten as seq_rm, kUnsupported for a part of a state.
    Result<void> seq_cp(SeqId from, SeqId to, Pos p0, Pos p1);

    // Forgets every sequence but this one.
    Result<void> seq_keep(SeqId seq);

    // Moves the positions of the cells at [p0, p1) by `delta`. Cells that would stand below 0 are
    // forgotten; kBadRange when one would pass the greatest position. Edits spans only: no cell is
    // copied or re-encoded, and others keep what they see. Only where a sequence would come to more
    // than `max_deltas` different deltas its moved cells are re-encoded into pages of its own
    // (pending moves), and kNoRoom is possible. kUnsupported for a part of what a state has taken
    // up; all of it only gets other positions. kForgotten if a window would then reach back to
    // cells that have left. O(spans of the sequence).
    Result<void> seq_add(SeqId seq, Pos p0, Pos p1, Pos delta);

    // Whether seq_add can move any part of a sequence, every group willing. Where it cannot, some
    // group keeps a state that has no parts. O(groups).
    bool can_shift() const;

    // Divides the positions of the cells at [p0, p1) by `d`, rounding down. The cells are
    // re-encoded into pages of their own (pending moves). Errors: kInvalidArgument for d < 1,
    // kUnsupported over cells whose position components differ (images) and for a part of what a
    // state has taken up, kNoRoom. Checkpoints in the range are lost.
    Result<void> seq_div(SeqId seq, Pos p0, Pos p1, int32_t d);

    // Forgets every sequence.
    Result<void> clear();

    // Keeps the windows and states of `seq` as they are now, so that it can go back here:
    // seq_rm(seq, seq_pos_max(seq) + 1, -1), at any later time. Where every cell is kept anyway it
    // does nothing. Errors: kBadRange if the sequence holds nothing, kUnsupported if the memory
    // keeps no checkpoints.
    Result<void> checkpoint(SeqId seq);

    // First and last position of `seq`, or -1 when it holds nothing. Over several groups the first
    // is the greatest of the groups': from there on all of them have what they keep of the newest
    // tokens. Of a recurrent group it is the oldest state's.
    Pos seq_pos_min(SeqId seq) const;
    Pos seq_pos_max(SeqId seq) const;

    // -- Room ----------------------------------------------------------------------------------

    // Sets what `seq` may count on and may take. Its guarantee counts the cells that it holds: room
    // is set aside for the rest, and kept at that while other sequences come and go. Giving cells
    // back sets their room aside again as far as free pages allow. Errors: kNoRoom if the guarantee
    // cannot be given, kInvalidArgument if it passes the maximum, kBusy.
    Result<void> set_limits(SeqId seq, const SeqLimits& limits);

    // Makes a group's pool larger now, to at least `n_cells`, even beyond what the config allows.
    // Errors: kBadRange if it is larger already, kBusy.
    Result<void> grow(uint32_t group, uint32_t n_cells);

    // Merges pages of which sequences see at most half, all groups, moving at most `max_cells` a
    // group (pending moves). Returns the cells moved; 0 when there is nothing to gain or no free
    // page to gather into. What sequences see does not change. O(pool + spans). Errors: kBusy.
    Result<uint32_t> defrag(uint32_t max_cells);

    // The same in those groups where sequences leave more than `threshold` (0 to 1) of the cells
    // unused in pages that could be emptied: all that sequences see but for those that a sequence
    // can still append to, whose room is not lost, and those that somebody keeps. O(pool + spans)
    // even if it moves nothing. Errors: kInvalidArgument for another threshold, kBusy.
    Result<uint32_t> defrag_if_above(double threshold, uint32_t max_cells);

    // Keeps the cells of a span, which a sequence sees now, alive without a sequence. Errors:
    // kBadRange for cells that nobody sees.
    Result<Hold> keep(uint32_t group, const Span& span);

    // Free pages that are set aside for sequences with a guarantee.
    uint32_t reserved_pages(uint32_t group) const { return reserves_.total(group); }

    // -- Moves that verbs left to be done ------------------------------------------------------

    // In the order in which they must be done, all of them before the next `prepare` (which is
    // kBusy until then). Sources stay as they are until `finish_moves`.
    std::span<const CellMove> pending() const { return pending_; }

    // kBusy while there are any.
    Result<void> check_moves_done() const;

    // Says that the pending moves have been done.
    void finish_moves();

    // -- Batches -------------------------------------------------------------------------------

    // Reserves cells for the whole batch, or for nothing of it. Positions of a sequence must grow:
    // each item's lies behind all that the sequence holds, and just behind it where a group is
    // recurrent; such memories split equally or per sequence. Cells that leave with a window after
    // one ubatch are room for the next, so that a sequence needs its window and a ubatch. An item
    // of several sequences needs them to see the same cells before it. Errors: kInvalidArgument or
    // kBadRange for a batch that makes no sense, kBusy while a plan is open, kNoRoom with the
    // numbers of the group that lacks most. O(items), and O(spans of the window) for each sequence
    // and sliding group.
    Result<Plan> prepare(const Batch& batch, const SplitOptions& options);

    // Makes ubatch `i` of the plan visible. Ubatches commit once and in order. Errors: kStale for a
    // plan that is finished, cancelled, moved from or of other Cells; kBadRange for another `i`.
    Result<void> commit(Plan& plan, size_t i);

    // -- Looking -------------------------------------------------------------------------------

    bool busy() const { return open_plan_ != 0; }
    uint32_t page_size() const { return page_size_; }  // of all but recurrent groups
    uint32_t n_pos() const { return n_pos_; }
    uint32_t n_groups() const { return static_cast<uint32_t>(pools_.size()); }
    const PagePool& pool(uint32_t group) const { return pools_[group]; }

    GroupKind kind(uint32_t group) const { return kinds_[group]; }
    bool has_recurrent() const;
    bool any_lets_go() const { return lets_go_; }  // of any group, see lets_go
    uint32_t n_rollback() const { return n_rollback_; }

    // Whether cells leave the group's sequences by themselves.
    bool lets_go(uint32_t group) const {
        return kinds_[group].is_recurrent() || (kinds_[group].slides() && !keeps_windows_);
    }

    // Row number of the cells that nobody may write: a fresh sequence's state is read there.
    uint32_t zero_row(uint32_t group) const {
        return pools_[group].max_pages() * pools_[group].page_size();
    }

    // What `seq` sees in a group: spans in order of position, empty when it holds nothing. Valid
    // until the next verb or commit.
    std::span<const Span> spans(SeqId seq, uint32_t group) const;
    uint32_t n_cells(SeqId seq, uint32_t group) const;

    // Where `seq` can go back to, ascending. Valid until the next verb or commit.
    std::span<const Checkpoint> checkpoints(SeqId seq) const;

    // Positions whose cells left the group's window. Valid until the next verb or commit.
    std::span<const Range> forgotten(SeqId seq, uint32_t group) const;

    // Recurrent: the position of the first token that the states of `seq` have taken up.
    Pos taken_up_from(SeqId seq, uint32_t group) const;

    // The position of cell `index` of a span.
    Pos pos(uint32_t group, const Span& span, uint32_t index) const {
        return pools_[group].pos(span.page, span.first + index) + span.delta;
    }

    // Bytes of all this bookkeeping, heap blocks included. O(pool + sequences).
    size_t bytes() const;

    // Ids of all sequences that hold something, ascending. O(n log n).
    std::vector<SeqId> sequences() const;

private:
    friend class Compactor;
    friend class Departures;
    friend class Loading;
    friend class Plan;
    friend class Planner;

    explicit Cells(uint32_t n_groups) : reserves_(n_groups) {}
    Result<void> check_verb(SeqId seq, bool wildcard) const;
    Sequence* find(SeqId seq);
    const Sequence* find(SeqId seq) const;
    Sequence& find_or_add(SeqId seq);
    std::vector<SeqId> selected(SeqId seq) const;
    void drop(SeqId seq);
    void drop_if_empty(SeqId seq);
    Result<void> check_rm(SeqId seq, Range range) const;
    Result<void> check_cp(SeqId from, SeqId to, Range range) const;
    Result<void> check_copied_window(SeqId from, SeqId to, uint32_t group, Range range) const;
    Result<void> check_shifted_window(SeqId seq, uint32_t group, Range range, Pos delta) const;
    Result<void> check_whole_states(SeqId seq, Range range) const;
    Result<void> check_end(SeqId seq, uint32_t group, Pos end) const;
    void add_checkpoint(SeqId seq, Pos pos, Plan* plan);
    void limit_checkpoints(Plan* plan);
    void drop_checkpoints(Sequence& sequence, Range range);
    void move_checkpoints(Sequence& sequence, Range range, Pos delta);
    void copy_checkpoints(const Sequence& from, Sequence& to, Range range);
    void drop_lost_checkpoints(SeqId seq);
    void expire(SeqId seq, Plan* plan);
    uint64_t pages_held(SeqId seq, uint32_t group) const;
    uint64_t counted_cells(SeqId seq, uint32_t group) const;
    void open_ubatch(Plan& plan, size_t i);
    Result<void> check_shift(SeqId seq, Range range, int64_t delta) const;
    Result<void> check_components(SeqId seq, Range range, int64_t delta) const;
    Result<void> check_scalar(SeqId seq, Range range) const;
    Result<void> make_room(std::span<const uint64_t> needed);
    void grow_until_free(uint32_t group, uint64_t n_pages);
    bool grow_by_missing(std::span<const uint32_t> missing);
    uint64_t free_pages(uint32_t group, SeqId seq) const;
    tl::unexpected<Error> no_room(uint32_t group, uint64_t pages, uint64_t free) const;
    uint64_t cells_to_reencode(const Track& track, uint32_t group, Range range, Pos delta) const;
    void divide(Track& track, uint32_t group, Range range, int32_t d);
    void reencode(Track& track, uint32_t group, Range range, int32_t divisor);
    uint64_t pages(uint32_t group, uint64_t cells) const {
        return (cells + pools_[group].page_size() - 1) / pools_[group].page_size();
    }
    uint32_t promised_pages(SeqId seq, uint32_t group) const;
    void settle();
    void settle_reserves();
    void cancel(Plan& plan);
    void close(Plan& plan);

    uint32_t page_size_ = 0;
    uint32_t grow_pages_ = 0;  // step in which pools grow on demand; 0: they do not
    uint32_t n_pos_ = 1;
    uint32_t max_deltas_ = 0;
    bool keeps_windows_ = false;
    bool lets_go_ = false;  // some group does
    uint32_t n_rollback_ = 0;
    uint32_t max_checkpoints_ = 0;
    uint32_t max_checkpoints_all_ = 0;
    uint32_t max_ubatch_ = 0;
    std::vector<PagePool> pools_;    // by group
    std::vector<GroupKind> kinds_;   // by group
    std::vector<CellMove> pending_;  // each holds its source, up to the end of what it copies
    std::unordered_map<int32_t, Sequence> sequences_;  // only those that hold something
    Reserves reserves_;
    uint64_t open_plan_ = 0;  // serial of the plan that is open; 0: none
    uint64_t last_serial_ = 0;
    uint64_t last_checkpoint_ = 0;  // serial
    uint32_t n_checkpoints_ = 0;    // of all sequences
};

}  // namespace cellar
