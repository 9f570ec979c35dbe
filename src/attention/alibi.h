#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace cellar {

// Attention with linear biases (Press, Smith, Lewis 2022, arXiv:2108.12409): instead of positions
// being turned or embedded, each head lowers its scores by slope * distance.

// The slope of a head: 2^(-max_bias / n), 2^(-2 max_bias / n), ... for n heads, n a power of two.
// Of other counts the first heads, as many as the next lower power of two, have that power's
// slopes, and the rest every second slope of twice that power, as in the authors' code and in ggml.
// `max_bias` is 8 in the paper, and the exponent of the least slope; 0: all slopes are 0.
double alibi_slope(uint32_t head, uint32_t n_head, double max_bias);

// What to add to one head's scores: -slope * |query - key|, to `biases` [n_queries, n_keys], keys
// innermost. Encoders see what lies behind them, so distances have no sign.
void fill_alibi_biases(std::span<const Pos> queries, std::span<const Pos> keys, double slope,
                       std::span<float> biases);

}  // namespace cellar
