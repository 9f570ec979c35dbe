#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace cellar {

// The slope of a head's ALiBi bias (Press et al. 2022): a key `d` positions before its query scores
// less by slope * d. Heads beyond the greatest power of two take the slopes between, as in ggml.
inline float alibi_slope(uint32_t head, uint32_t n_head, double max_bias) {
    const uint32_t n_even = std::bit_floor(n_head);
    const double exponent = head < n_even ? max_bias / n_even * (head + 1)
                                          : max_bias / 2 / n_even * (2 * (head - n_even) + 1);
    return static_cast<float>(std::exp2(-exponent));
}

}  // namespace cellar
