#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cells/loading.h"
#include "state/head.h"
#include "state/loader.h"

namespace cellar {

// Which cells of one saved group are loaded, and as which: all that the chosen sequences see.
class CellSelection {
public:
    // Saved cells [begin, end) become cells [first, ...) of the load.
    struct Piece {
        uint32_t begin = 0;
        uint32_t end = 0;
        uint32_t first = 0;
    };

    CellSelection() = default;  // none
    // Runs inside of the group's cells.
    explicit CellSelection(const std::vector<const LoadTrack*>& tracks);

    uint32_t n_cells() const { return n_cells_; }
    uint32_t number_of(uint32_t saved) const;

    // What of the saved cells [first, +count) is loaded.
    std::vector<Piece> within(uint32_t first, uint32_t count) const;

    const std::vector<Piece>& pieces() const { return pieces_; }

private:
    std::vector<Piece> pieces_;  // ascending, apart from each other
    uint32_t n_cells_ = 0;
};

// What is loaded of a state.
struct StateSelection {
    std::vector<const StateHead::Sequence*> seqs;
    std::vector<SeqId> targets;                        // [seqs] what they become
    std::vector<std::optional<CellSelection>> groups;  // by group; none: it is not loaded
};

// Chooses what the options name. `head` must outlive it. Errors: kBadRange for what the state does
// not have, kBadFile for sequences that see cells which it does not have.
Result<StateSelection> select(const StateHead& head, const LoadStateOptions& options);

// The request that loads it.
LoadRequest make_request(const StateHead& head, const StateSelection& selection);

}  // namespace cellar
