#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace cellar {

// What an encoder's tokens see of each other: everything of their sequence, behind them too, or,
// with a window W, what is at most W / 2 positions away on either side (ModernBERT, Warner et al.
// 2024, arXiv:2412.13663, 2.1: W = 128 and 64 on each side).

// Whether a query at `query` sees a key of its sequence at `key`. `window` 0: none.
bool encoder_sees(Pos query, Pos key, uint32_t window);

// The mask of tokens that attend to each other, to `mask` [n, n], keys innermost: 0 where the query
// sees the key, else minus infinity. `seqs` and `positions` are those of the n tokens. Every token
// sees itself, so no row is all infinite.
void fill_encoder_mask(std::span<const SeqId> seqs, std::span<const Pos> positions, uint32_t window,
                       std::span<float> mask);

}  // namespace cellar
