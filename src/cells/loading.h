#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "cells/ranges.h"
#include "cells/span.h"

namespace cellar {

class Cells;
class PagePool;

// Cells [first, +count) of those that are loaded into a group, as a sequence will see them.
struct LoadRun {
    uint32_t first = 0;
    uint32_t count = 0;  // at least 1
    Pos delta = 0;       // what moved since their keys were encoded

    friend bool operator==(const LoadRun&, const LoadRun&) = default;
};

// What one sequence will see in a group.
struct LoadTrack {
    std::vector<LoadRun> runs;          // in order of position
    std::vector<Range> forgotten = {};  // positions whose cells left with the window, ascending
    Pos begin = 0;  // recurrent: the position of the first token that the states have taken up
};

// What is to be loaded into one group: each cell once, and who will see it. In a recurrent group
// the cells are states, each at the position of the last token that it has taken up.
struct LoadGroup {
    std::vector<Pos> positions;     // [n_cells * n_pos] that keys were encoded with
    std::vector<LoadTrack> tracks;  // [n_seqs]
};

struct LoadRequest {
    std::vector<SeqId> seqs;                       // each once
    std::vector<std::optional<LoadGroup>> groups;  // [n_groups]; none: it keeps what it holds
    // [n_seqs] ascending positions that each sequence can go back to; or empty: none
    std::vector<std::vector<Pos>> checkpoints = {};
    bool trim = false;  // see Loading::commit
};

// A load under way: pages are taken and visible to nobody. Their owner writes the rows, then
// `commit` makes them the sequences', in the place of what these held; abandoning (or dropping) it
// frees the pages, and nothing has changed. Until then every verb of its Cells, which must outlive
// it, answers kBusy.
//
// Cells that several sequences see are shared again. Cells that a sequence is the first to see
// stand densely in pages that begin with them.
class Loading {
public:
    // Neighbouring cells: [first, +count) of the load stand in rows [row, +count) of the pool.
    struct Rows {
        uint32_t first = 0;
        uint32_t row = 0;
        uint32_t count = 0;
    };

    // A sequence must end at the same position in all groups that are loaded, and hold that one in
    // those that are not. Errors: kInvalidArgument or kBadRange for a request that makes no sense,
    // kUnsupported for windows that are not whole where this memory keeps them whole, kForgotten
    // where a group that is not loaded cannot go back to where the others end, kBusy while a plan
    // or another load is open or moves are pending, kNoRoom with the numbers of the group that
    // lacks room: what the sequences hold so far does not count as free. O(cells + runs).
    static Result<Loading> begin(Cells& cells, LoadRequest request);

    Loading(Loading&& other) noexcept
        : cells_(std::exchange(other.cells_, nullptr)),
          request_(std::move(other.request_)),
          pages_(std::move(other.pages_)),
          ends_(std::move(other.ends_)) {}
    Loading& operator=(Loading&&) = delete;
    ~Loading() { abandon(); }

    bool open() const { return cells_ != nullptr; }
    uint32_t n_cells(uint32_t group) const;

    // Where cells [first, +count) of a loaded group stand, in order.
    std::vector<Rows> rows(uint32_t group, uint32_t first, uint32_t count) const;

    // Makes the cells visible. In groups that are not loaded, cells behind the last loaded position
    // are forgotten. What this memory keeps less of than the one that was saved (windows,
    // roll-back) goes with the next token, or at once if asked to `trim`; checkpoints beyond its
    // limits go at once. O(runs + pages).
    // An open load only; it cannot fail.
    void commit();

    // Frees the pages. Again, or after a commit: does nothing.
    void abandon();

private:
    struct StagedPage {
        PageId page = kNoPage;
        uint32_t first = 0;  // of the load's cells
        uint32_t count = 0;
    };

    Loading(Cells& cells, LoadRequest request) : cells_(&cells), request_(std::move(request)) {}
    Result<void> check_request() const;
    Result<void> check_group(uint32_t group) const;
    Result<void> check_track(uint32_t group, size_t seq, const std::vector<uint32_t>& falls) const;
    Result<void> check_maximum(uint32_t group, size_t seq, uint64_t seen) const;
    Result<void> check_checkpoints() const;
    Result<void> check_end(uint32_t group, size_t seq) const;
    void find_ends();
    std::vector<uint32_t> segments(uint32_t group) const;
    Result<void> make_room();
    void take_pages(uint32_t group);
    std::vector<Span> spans_of(uint32_t group, const std::vector<LoadRun>& runs) const;
    void take_checkpoints(size_t seq);
    void close();

    Cells* cells_;  // null once it was committed, abandoned or moved from
    LoadRequest request_;
    std::vector<std::vector<StagedPage>> pages_;  // by group, ascending; each held with end 0
    std::vector<Pos> ends_;                       // [n_seqs] behind the last loaded position
};

}  // namespace cellar
