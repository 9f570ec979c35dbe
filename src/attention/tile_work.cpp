#include "attention/tile_work.h"

#include <algorithm>

#include "attention/tile_layout.h"

namespace cellar {
namespace {

constexpr uint32_t kGroupRows = 192;  // that share one conversion of K and V, and fit the cache

constexpr uint32_t round_up(uint32_t n, uint32_t step) {
    return (n + step - 1) / step * step;
}

// Columns of a unit. Short ones let more threads take part; each writes sums for all of its rows,
// so segments that have many groups of rows anyhow are split less, and long ones into so many parts
// at most that their sums stay small.
uint32_t split_length(uint32_t n_columns, uint32_t n_rows) {
    const auto at_least = [&](uint32_t columns, uint32_t most_parts) {
        return std::max(columns, round_up(n_columns / most_parts + 1, 64));
    };
    if (n_rows <= kFewRows)
        return at_least(std::clamp(round_up(n_columns / 16, 64), 64u, 256u), 128);
    const uint32_t n_groups = (n_rows + kGroupRows - 1) / kGroupRows;
    return n_groups == 1  ? at_least(512, 64)
           : n_groups < 4 ? at_least(1024, 16)
                          : at_least(2048, 8);
}

// Nanoseconds a column and KV head, measured with heads of 64 and f16.
double column_cost(uint32_t n_rows) {
    return n_rows <= kFewRows ? 21 + 3 * n_rows : 35 + 1.75 * round_up(n_rows, 16);
}

}  // namespace

void TileWork::divide(const Cascade& cascade) {
    stride_ = partial_floats(shape_.head_dim_v);
    cuts_.clear();
    units_.clear();
    costs_.clear();
    n_floats_ = 0;
    max_rows_ = 0;
    for (uint32_t segment = 0; segment < cascade.segments.size(); segment++) {
        cuts_.push_back(cut(cascade.segments[segment]));
        n_floats_ += size_t{shape_.n_head_kv} * kv_head_stride(segment);
        add_units(cascade, segment);
    }
    max_partials_ = 0;
    for (uint32_t item = 0; item < cascade.n_tokens; item++) {
        size_t n = 0;
        for (const Cascade::Part& part : cascade.parts_of(item))
            n += cuts_[part.segment].n_splits;
        max_partials_ = std::max(max_partials_, n);
    }
}

TileWork::Cut TileWork::cut(const Cascade::Segment& segment) const {
    Cut cut;
    cut.n_rows = segment.n_queries * shape_.n_shared();
    const uint32_t longest = split_length(segment.n_columns, cut.n_rows);
    cut.n_splits = (segment.n_columns + longest - 1) / longest;
    cut.split_columns = round_up((segment.n_columns + cut.n_splits - 1) / cut.n_splits, 64);
    cut.group_queries = std::max(1u, kGroupRows / shape_.n_shared());
    cut.first = n_floats_;
    return cut;
}

size_t TileWork::kv_head_stride(uint32_t segment) const {
    return size_t{cuts_[segment].n_splits} * cuts_[segment].n_rows * stride_;
}

void TileWork::add_units(const Cascade& cascade, uint32_t segment) {
    const Cut& cut = cuts_[segment];
    const uint32_t n_columns = cascade.segments[segment].n_columns;
    const uint32_t n_queries = cascade.segments[segment].n_queries;
    // Few rows are computed for all KV heads together, which reads the pools from end to end.
    const uint32_t heads = cut.n_rows <= kFewRows ? shape_.n_head_kv : 1;
    for (uint32_t split = 0; split < cut.n_splits; split++) {
        for (uint32_t head = 0; head < shape_.n_head_kv; head += heads) {
            for (uint32_t query = 0; query < n_queries; query += cut.group_queries) {
                Unit unit;
                unit.segment = segment;
                unit.kv_head = head;
                unit.n_kv_heads = heads;
                unit.first_query = query;
                unit.n_queries = std::min(cut.group_queries, n_queries - query);
                unit.first_column = std::min(split * cut.split_columns, n_columns);
                unit.end_column = std::min(unit.first_column + cut.split_columns, n_columns);
                const size_t row = size_t{query} * shape_.n_shared();
                unit.partial = cut.first + head * kv_head_stride(segment) +
                               (split * cut.n_rows + row) * stride_;
                add_unit(cascade, unit);
            }
        }
    }
}

void TileWork::add_unit(const Cascade& cascade, Unit unit) {
    const auto queries = cascade.queries_of(cascade.segments[unit.segment])
                             .subspan(unit.first_query, unit.n_queries);
    const auto [begin, end] = seen_columns(queries, unit.first_column, unit.end_column);
    const uint32_t n_rows = unit.n_queries * shape_.n_shared();
    const uint32_t n_columns = begin < end ? end - begin : 0;
    const double cost = (column_cost(n_rows) * n_columns + 20 * n_rows + 100) * unit.n_kv_heads;
    costs_.push_back((costs_.empty() ? 0 : costs_.back()) + cost);
    units_.push_back(unit);
    max_rows_ = std::max(max_rows_, n_rows);
}

std::span<const TileWork::Unit> TileWork::share(size_t i, size_t n) const {
    const auto bound = [&](size_t k) -> size_t {
        if (k == n || units_.empty()) return units_.size();
        const double until = costs_.back() * static_cast<double>(k) / static_cast<double>(n);
        // A unit belongs to the thread in whose share its middle lies.
        const auto at = std::lower_bound(costs_.begin(), costs_.end(), until);
        const auto unit = static_cast<size_t>(at - costs_.begin());
        const double before = unit == 0 ? 0 : costs_[unit - 1];
        return (before + costs_[unit]) / 2 < until ? unit + 1 : unit;
    };
    const size_t begin = bound(i);
    return std::span(units_).subspan(begin, bound(i + 1) - begin);
}

size_t TileWork::list_partials(const Cascade& cascade, uint32_t item, uint32_t head,
                               const float* sums, const float** out) const {
    const uint32_t n_shared = shape_.n_shared();
    size_t n = 0;
    for (const Cascade::Part& part : cascade.parts_of(item)) {
        const Cut& cut = cuts_[part.segment];
        const float* of_head = sums + cut.first + head / n_shared * kv_head_stride(part.segment);
        const size_t row = size_t{part.query} * n_shared + head % n_shared;
        for (uint32_t split = 0; split < cut.n_splits; split++)
            out[n++] = of_head + (size_t{split} * cut.n_rows + row) * stride_;
    }
    return n;
}

}  // namespace cellar
