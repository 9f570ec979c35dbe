#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/cascade.h"

namespace cellar {

// What of a layer's shape decides how its attention is divided.
struct HeadShape {
    uint32_t n_head = 0;
    uint32_t n_head_kv = 0;
    uint32_t head_dim_k = 0;
    uint32_t head_dim_v = 0;

    uint32_t n_shared() const { return n_head / n_head_kv; }  // heads that share a KV head

    friend bool operator==(const HeadShape&, const HeadShape&) = default;
};

// A cascade divided into units of work that threads can do in any order. The division depends on
// the cascade and the heads alone, never on the number of threads, and so do the results.
class TileWork {
public:
    explicit TileWork(const HeadShape& shape) : shape_(shape) {}

    // Of one segment: these KV heads, queries and columns.
    struct Unit {
        uint32_t segment = 0;
        uint32_t kv_head = 0;
        uint32_t n_kv_heads = 0;
        uint32_t first_query = 0;  // of the segment
        uint32_t n_queries = 0;
        uint32_t first_column = 0;  // of the segment
        uint32_t end_column = 0;
        size_t partial = 0;  // where the sums of its first KV head begin, in floats
    };

    // O(units + queries).
    void divide(const Cascade& cascade);

    const HeadShape& shape() const { return shape_; }

    // The units that thread `i` of `n` does: about an equal share of the whole cost.
    std::span<const Unit> share(size_t i, size_t n) const;

    // From one KV head's sums to the next one's, in floats.
    size_t kv_head_stride(uint32_t segment) const;

    // Lists where the sums of one head of an item stand, in order; returns how many there are, at
    // most max_partials().
    size_t list_partials(const Cascade& cascade, uint32_t item, uint32_t head, const float* sums,
                         const float** out) const;

    size_t n_floats() const { return n_floats_; }          // of all sums
    uint32_t max_rows() const { return max_rows_; }        // of a unit and KV head
    size_t max_partials() const { return max_partials_; }  // of an item and head

private:
    // How a segment is divided.
    struct Cut {
        uint32_t n_splits = 1;
        uint32_t split_columns = 0;
        uint32_t group_queries = 0;
        uint32_t n_rows = 0;
        size_t first = 0;  // float of its sums: [n_head_kv][n_splits][n_rows][partial]
    };

    Cut cut(const Cascade::Segment& segment) const;
    void add_units(const Cascade& cascade, uint32_t segment);
    void add_unit(const Cascade& cascade, Unit unit);

    HeadShape shape_;
    size_t stride_ = 0;      // floats of one row's sums
    std::vector<Cut> cuts_;  // by segment
    std::vector<Unit> units_;
    std::vector<double> costs_;  // of the units up to and with this one
    size_t n_floats_ = 0;
    uint32_t max_rows_ = 0;
    size_t max_partials_ = 0;
};

}  // namespace cellar
