#include "attention/relative_buckets.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>

namespace cellar {

namespace {

// The bucket of a distance among the `n` of one direction.
uint32_t bucket_of(int64_t distance, uint32_t n, uint32_t max_distance) {
    const uint32_t n_exact = n / 2;
    assert(n_exact > 0 && max_distance > n_exact);
    if (distance < n_exact) return static_cast<uint32_t>(distance);
    const double growth = std::log(static_cast<double>(distance) / n_exact) /
                          std::log(static_cast<double>(max_distance) / n_exact);
    // A distance at which a bucket begins must not be rounded into the one before.
    constexpr double kRounding = 1e-9;
    const double step = std::floor(growth * (n - n_exact) + kRounding);
    return n_exact + static_cast<uint32_t>(std::min<double>(step, n - n_exact - 1));
}

}  // namespace

uint32_t relative_bucket(const RelativeBuckets& buckets, Pos query, Pos key) {
    const int64_t after = int64_t{key} - query;
    if (!buckets.bidirectional) {
        return bucket_of(std::max<int64_t>(-after, 0), buckets.n_buckets, buckets.max_distance);
    }
    const uint32_t n = buckets.n_buckets / 2;
    return (after > 0 ? n : 0) + bucket_of(std::abs(after), n, buckets.max_distance);
}

void fill_relative_buckets(const RelativeBuckets& buckets, std::span<const Pos> queries,
                           std::span<const Pos> keys, std::span<int32_t> out) {
    assert(out.size() == queries.size() * keys.size());
    size_t i = 0;
    for (const Pos query : queries) {
        for (const Pos key : keys) {
            out[i++] = static_cast<int32_t>(relative_bucket(buckets, query, key));
        }
    }
}

}  // namespace cellar
