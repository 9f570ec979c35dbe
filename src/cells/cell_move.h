#pragma once

#include <cstdint>

#include "cells/span.h"

namespace cellar {

// Cells whose bytes must stand elsewhere before they are used.
struct CellCopy {
    PageId from = kNoPage;
    PageId to = kNoPage;
    uint16_t from_first = 0;
    uint16_t to_first = 0;
    uint16_t count = 0;
};

// A copy that a verb left to be done, in one group. With `turns` the keys change position on the
// way: from what the pool says of the source cells to what it says of the targets.
struct CellMove {
    uint32_t group = 0;
    CellCopy copy;
    bool turns = false;
};

}  // namespace cellar
