#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace cellar {

// T5's relative positions (Raffel et al. 2020, arXiv:1910.10683, 2.1; the formula is that of
// `_relative_position_bucket` in Mesh TensorFlow's and Hugging Face's T5): a distance falls into
// one of a few buckets, and each head has a learned number for each bucket that is added to its
// scores.
struct RelativeBuckets {
    uint32_t n_buckets = 32;
    uint32_t max_distance = 128;  // from which on all distances share the last bucket
    bool bidirectional = true;    // encoders: keys after the query have the upper half of buckets
};

// The bucket, from 0 to n_buckets - 1, of a key as a query sees it. Half of a direction's buckets
// hold one distance each; the others grow with the logarithm of the distance up to `max_distance`.
// Without `bidirectional`, keys after the query count as distance 0. At least 2 buckets a
// direction, and `max_distance` larger than half of them.
uint32_t relative_bucket(const RelativeBuckets& buckets, Pos query, Pos key);

// The buckets of all pairs, to `out` [n_queries, n_keys], keys innermost: row numbers for
// ggml_get_rows of the table of biases [n_head, n_buckets].
void fill_relative_buckets(const RelativeBuckets& buckets, std::span<const Pos> queries,
                           std::span<const Pos> keys, std::span<int32_t> out);

}  // namespace cellar
