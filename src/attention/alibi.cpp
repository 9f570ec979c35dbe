#include "attention/alibi.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstdlib>

namespace cellar {

double alibi_slope(uint32_t head, uint32_t n_head, double max_bias) {
    assert(head < n_head);
    if (max_bias <= 0) return 0;
    const uint32_t n_even = std::bit_floor(n_head);
    if (head < n_even) return std::pow(2.0, -max_bias / n_even * (head + 1));
    return std::pow(2.0, -max_bias / 2 / n_even * (2 * (head - n_even) + 1));
}

void fill_alibi_biases(std::span<const Pos> queries, std::span<const Pos> keys, double slope,
                       std::span<float> biases) {
    assert(biases.size() == queries.size() * keys.size());
    size_t i = 0;
    for (const Pos query : queries) {
        for (const Pos key : keys) {
            biases[i++] =
                static_cast<float>(-slope * static_cast<double>(std::abs(int64_t{query} - key)));
        }
    }
}

}  // namespace cellar
