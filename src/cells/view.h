#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cells/cells.h"

namespace cellar {

// A snapshot of Cells for people and programs: plain data, no references.
struct PageView {
    PageId page = kNoPage;
    uint32_t fill = 0;     // cells up to the greatest end that a holder sees
    uint32_t used = 0;     // cells that some sequence sees
    uint32_t holders = 0;  // keepers included
    uint32_t keepers = 0;
    Pos first_pos = -1;  // that the first and last filled cell were encoded with; -1 when empty
    Pos last_pos = -1;
};

struct SequenceView {
    SeqId seq{0};
    uint32_t cells = 0;  // in this group
    Pos pos_min = -1;
    Pos pos_max = -1;
    std::vector<Span> spans;
};

struct GroupView {
    uint32_t page_size = 0;
    uint32_t pages = 0;
    uint32_t max_pages = 0;  // that the pool may grow to
    uint32_t free_pages = 0;
    uint32_t cached_pages = 0;      // only keepers hold them
    uint32_t used_cells = 0;        // distinct cells that sequences see
    uint32_t held_cells = 0;        // the same, once for each sequence that sees them
    uint32_t largest_free_run = 0;  // neighbouring free pages
    uint32_t reserved_pages = 0;    // free, but set aside for sequences that were promised room
    Pos greatest_pos = -1;
    std::vector<PageView> live;           // pages that somebody holds, ascending
    std::vector<SequenceView> sequences;  // ascending
};

struct CellsView {
    std::vector<GroupView> groups;
};

// O(pool + spans).
CellsView make_view(const Cells& cells);

// Text for people. Level 1: counts; 2: and a map of pages (a letter is how many hold the page:
// `.` nobody, `c` only keepers, `1`-`9`, `+` more; upper line by page, 64 a row); 3: and each
// page's positions and each sequence's spans.
std::string describe(const CellsView& view, int level);

}  // namespace cellar
