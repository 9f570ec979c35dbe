#include "attention/encoder_mask.h"

#include <cassert>
#include <cstdlib>
#include <limits>

namespace cellar {

bool encoder_sees(Pos query, Pos key, uint32_t window) {
    return window == 0 || std::abs(int64_t{query} - key) <= window / 2;
}

void fill_encoder_mask(std::span<const SeqId> seqs, std::span<const Pos> positions, uint32_t window,
                       std::span<float> mask) {
    const size_t n = positions.size();
    assert(seqs.size() == n && mask.size() == n * n);
    for (size_t query = 0; query < n; query++) {
        for (size_t key = 0; key < n; key++) {
            const bool seen =
                seqs[query] == seqs[key] && encoder_sees(positions[query], positions[key], window);
            mask[query * n + key] = seen ? 0.0f : -std::numeric_limits<float>::infinity();
        }
    }
}

}  // namespace cellar
