#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cells/cells.h"

namespace cellar {

// Compaction of one group: pages of which sequences see at most half are emptied, several into one
// fresh page, and every sequence's spans follow. What a sequence sees does not change.
class Compactor {
public:
    // O(pool + spans).
    Compactor(Cells& cells, uint32_t group)
        : cells_(cells), pool_(cells.pools_[group]), group_(group) {
        find_used();
    }

    // Whether no sequence sees more than this fraction of the cells of pages that may be emptied.
    bool unused_above(double fraction) const;

    // Once: moves at most `max_cells`, as pending moves; returns how many.
    uint32_t run(uint32_t max_cells);

private:
    static constexpr uint32_t kMaxPage = 256;
    using Used = std::bitset<kMaxPage>;

    // Where a page's cells went.
    struct Target {
        PageId page = kNoPage;
        std::vector<uint16_t> offset;  // by the old offset
    };

    void find_used();
    bool may_empty(PageId page) const;
    std::vector<PageId> sparse_pages() const;
    void empty_into_one(const std::vector<PageId>& pages);
    void move_cells(PageId from, PageId to, uint32_t& end);
    void follow(Track& track);

    Cells& cells_;
    PagePool& pool_;
    const uint32_t group_;
    std::vector<Used> used_;                        // by page: cells that some sequence sees
    std::vector<bool> growing_;                     // by page: a sequence can append to it in place
    std::unordered_map<uint32_t, Target> targets_;  // by emptied page
};

}  // namespace cellar
