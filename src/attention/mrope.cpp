#include "attention/mrope.h"

#include <algorithm>
#include <cassert>

namespace cellar {

MropePos mrope_text(Pos pos) {
    return {pos, pos, pos, 0};
}

MropePos mrope_patch(const PatchGrid& grid, Pos begin, uint32_t index) {
    const uint32_t column = index % grid.n_columns;
    const uint32_t row = index / grid.n_columns % grid.n_rows;
    const uint32_t frame = index / grid.n_columns / grid.n_rows;
    assert(frame < grid.n_frames);
    return {begin + static_cast<Pos>(frame), begin + static_cast<Pos>(row),
            begin + static_cast<Pos>(column), 0};
}

uint32_t mrope_extent(const PatchGrid& grid) {
    return std::max({grid.n_frames, grid.n_rows, grid.n_columns});
}

}  // namespace cellar
