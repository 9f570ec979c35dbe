#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "cells/group_kind.h"
#include "cells/loading.h"
#include "memory/memory.h"
#include "memory/rows.h"
#include "state/identity.h"

namespace cellar {

// All that a state says but the keys and values themselves: docs/state-format.md has it byte by
// byte.
struct StateHead {
    struct Group {
        GroupKind kind;
        KvType type_k = KvType::kF16;
        KvType type_v = KvType::kF16;
        bool saved = false;
        std::vector<Pos> positions;  // [n_cells * n_pos]; empty unless saved

        KvType type(Side side) const { return side == Side::kKeys ? type_k : type_v; }
    };
    struct Layer {
        uint32_t group = 0;
        // Numbers of one cell's row: keys, values. Both 0: the layer has no rows of its own.
        uint64_t values[2] = {0, 0};

        bool keeps() const { return values[0] > 0; }

        friend bool operator==(const Layer&, const Layer&) = default;
    };
    struct Sequence {
        SeqId seq{0};
        std::vector<Token> tokens;
        std::vector<Pos> checkpoints;
        std::vector<LoadTrack> tracks;  // by group; empty unless it is saved
    };

    Identity identity;
    uint32_t n_pos = 1;
    std::vector<Group> groups;
    std::vector<Layer> layers;
    std::deque<Sequence> seqs;  // no vector: entries may be smaller in a file than in memory

    uint32_t n_cells(uint32_t group) const {
        return static_cast<uint32_t>(groups[group].positions.size() / n_pos);
    }
    // Bytes of one cell's row; 0 if there is none, or the type's blocks do not divide it.
    size_t row_bytes(uint32_t layer, Side side) const {
        const Layer& l = layers[layer];
        return bytes_of_row(groups[l.group].type(side), l.values[static_cast<uint32_t>(side)]);
    }
};

// What a memory is made of: groups, none saved, and layers.
StateHead describe_memory(const Memory& memory);

std::vector<std::byte> encode_head(const StateHead& head);

// Errors: kBadFile for bytes that are no head. Nothing is allocated for more than there is.
Result<StateHead> decode_head(std::span<const std::byte> bytes);

// Rows that one chunk holds at most: about 256 KiB, and at least one.
uint32_t rows_per_chunk(size_t row_bytes);

// A piece of the keys or values, in the order in which they stand in a state.
struct StatePiece {
    uint32_t layer = 0;
    Side side = Side::kKeys;
    uint32_t first = 0;  // cell of the group
    uint32_t count = 0;
};

// Calls `visit` for each piece, in order, until it answers an error.
template <class Visit>
Result<void> for_each_piece(const StateHead& head, const Visit& visit) {
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        for (uint32_t layer = 0; layer < head.layers.size(); layer++) {
            const StateHead::Layer& kept = head.layers[layer];
            if (kept.group != g || !kept.keeps() || !head.groups[g].saved) continue;
            for (const Side side : {Side::kKeys, Side::kValues}) {
                const uint32_t most = rows_per_chunk(head.row_bytes(layer, side));
                const uint32_t n_cells = head.n_cells(g);
                for (uint32_t first = 0; first < n_cells;) {
                    const uint32_t count = std::min(most, n_cells - first);
                    if (Result<void> done = visit(StatePiece{layer, side, first, count}); !done)
                        return done;
                    first += count;
                }
            }
        }
    }
    return {};
}

}  // namespace cellar
