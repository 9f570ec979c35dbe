#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"

namespace cellar {

// Position vectors of M-RoPE, the rotary positions of models that see images and videos
// (Qwen2-VL, Wang et al. 2024, arXiv:2409.12191, 2.1). The pairs of a head's dimensions are split
// into sections, and each is turned by another component: time, row, column, and a fourth that such
// models leave 0. This is the order of ggml_rope_multi and of Batch::add_at.
using MropePos = std::array<Pos, 4>;

// The patches of an image (one frame) or a video, in the order in which their tokens come: frames,
// in each its rows, in each its columns.
struct PatchGrid {
    uint32_t n_frames = 1;
    uint32_t n_rows = 1;
    uint32_t n_columns = 1;
};

// A token of text: all components count up together, and turn it as plain rotary positions do.
MropePos mrope_text(Pos pos);

// Patch `index` of a grid whose first patch stands at `begin` in every component. Patches of a
// frame share their time, which is the position that a memory's verbs and seq_pos_max see: an image
// is one position to them, a video one for each frame.
MropePos mrope_patch(const PatchGrid& grid, Pos begin, uint32_t index);

// How many positions a grid takes up: its longest side. What comes behind stands at
// begin + mrope_extent(grid), so that no component ever repeats, and not at seq_pos_max + 1: give
// its first token that position, after which kNextPos counts on.
uint32_t mrope_extent(const PatchGrid& grid);

}  // namespace cellar
