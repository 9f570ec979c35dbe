#include "attention/cascade.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace cellar {
namespace {

// What a segment costs a lane besides its columns, in columns: its queries are laid out, and their
// sums written, read and merged.
constexpr uint32_t kSegmentCost = 12;

// Neighbouring rows of the pool as one lane sees them.
struct Sight {
    uint32_t row = 0;
    uint32_t count = 0;
    uint32_t lane = 0;
    Pos delta = 0;
    uint32_t column = 0;  // of the lane
};

bool operator<(const Sight& a, const Sight& b) {
    return std::tie(a.row, a.lane, a.column) < std::tie(b.row, b.lane, b.column);
}

// Rows that all of its sights see, and no other sight sees any of them.
struct Interval {
    uint32_t first = 0;  // of the sights
    uint32_t n = 0;
};

class CascadeBuilder {
public:
    CascadeBuilder(const Cells& cells, const UbatchPlan& ubatch, uint32_t group, bool share)
        : share_(share), lanes_(find_lanes(cells, ubatch, group)) {
        out_.n_tokens = static_cast<uint32_t>(ubatch.items.size());
    }

    Cascade build() {
        find_sights();
        const bool alone = lanes_.size() == 1 || !share_;
        out_.read_cells = count_rows();
        if (!alone) cut();
        find_intervals(alone);
        order_intervals();
        if (!alone && part_short_chains()) order_intervals();
        find_turned();
        add_segments();
        list_parts();
        return std::move(out_);
    }

private:
    void find_sights() {
        for (uint32_t lane = 0; lane < lanes_.size(); lane++) {
            uint32_t column = 0;
            for (const RowRun& run : lanes_[lane].runs) {
                sights_.push_back({run.row, run.count, lane, run.delta, column});
                column += run.count;
            }
        }
    }

    uint64_t count_rows() {
        std::sort(sights_.begin(), sights_.end());
        uint64_t n = 0;
        uint32_t counted = 0;  // rows below are
        for (const Sight& sight : sights_) {
            const uint32_t end = sight.row + sight.count;
            if (end <= counted) continue;
            n += end - std::max(counted, sight.row);
            counted = end;
        }
        return n;
    }

    // Cuts the sights wherever one of them begins or ends, so that any two are of the same rows or
    // have none in common.
    void cut() {
        std::vector<uint32_t> cuts;
        for (const Sight& sight : sights_) {
            cuts.push_back(sight.row);
            cuts.push_back(sight.row + sight.count);
        }
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        std::vector<Sight> pieces;
        auto after = cuts.begin();
        for (const Sight& sight : sights_) {  // ascending by row
            while (*after <= sight.row)
                ++after;
            const uint32_t end = sight.row + sight.count;
            uint32_t row = sight.row;
            for (auto next = after; row < end; ++next) {
                pieces.push_back(
                    {row, *next - row, sight.lane, sight.delta, sight.column + row - sight.row});
                row = *next;
            }
        }
        std::sort(pieces.begin(), pieces.end());
        sights_ = std::move(pieces);
    }

    // Sights of the same rows become one interval; alone, each is one of its own.
    void find_intervals(bool alone) {
        for (uint32_t i = 0; i < sights_.size(); i++) {
            if (!alone && !intervals_.empty() &&
                sights_[intervals_.back().first].row == sights_[i].row) {
                intervals_.back().n++;
            } else {
                intervals_.push_back({i, 1});
            }
        }
    }

    // By the first lane that sees them, in the order in which it does.
    void order_intervals() {
        std::sort(intervals_.begin(), intervals_.end(), [&](const Interval& a, const Interval& b) {
            const Sight& x = sights_[a.first];
            const Sight& y = sights_[b.first];
            return std::tie(x.lane, x.column) < std::tie(y.lane, y.column);
        });
    }

    // Whether `b` follows `a` for all that see them.
    bool follows(const Interval& a, const Interval& b) const {
        if (a.n != b.n) return false;
        for (uint32_t i = 0; i < a.n; i++) {
            const Sight& x = sights_[a.first + i];
            const Sight& y = sights_[b.first + i];
            if (x.lane != y.lane || x.delta != y.delta || x.column + x.count != y.column)
                return false;
        }
        return true;
    }

    size_t chain_end(size_t begin) const {
        size_t end = begin + 1;
        while (end < intervals_.size() && follows(intervals_[end - 1], intervals_[end]))
            end++;
        return end;
    }

    uint32_t count(size_t begin, size_t end) const {
        uint32_t n = 0;
        for (size_t i = begin; i < end; i++)
            n += sights_[intervals_[i].first].count;
        return n;
    }

    // Shared columns are read once instead of for each lane. Where they are too few to pay for a
    // segment of their own, each lane gets them among its own. True if there were any.
    bool part_short_chains() {
        std::vector<Interval> parted;
        for (size_t begin = 0, end = 0; begin < intervals_.size(); begin = end) {
            end = chain_end(begin);
            const uint64_t n_lanes = intervals_[begin].n;
            const bool pays = (n_lanes - 1) * count(begin, end) >= n_lanes * kSegmentCost;
            for (size_t i = begin; i < end; i++) {
                if (n_lanes == 1 || pays) {
                    parted.push_back(intervals_[i]);
                    continue;
                }
                for (uint32_t k = 0; k < intervals_[i].n; k++)
                    parted.push_back({intervals_[i].first + k, 1});
            }
        }
        const bool any = parted.size() != intervals_.size();
        intervals_ = std::move(parted);
        return any;
    }

    // For each lane and each delta of it, its queries turned.
    void find_turned() {
        turned_.resize(lanes_.size());
        for (uint32_t lane = 0; lane < lanes_.size(); lane++) {
            for (const RowRun& run : lanes_[lane].runs) {
                auto& known = turned_[lane];
                const bool is_known =
                    std::any_of(known.begin(), known.end(),
                                [&](const auto& turn) { return turn.first == run.delta; });
                if (run.delta == 0 || is_known) continue;
                known.emplace_back(run.delta,
                                   out_.n_tokens + static_cast<uint32_t>(out_.turned.size()));
                for (const Lane::Query& query : lanes_[lane].queries)
                    out_.turned.push_back({query.item, run.delta});
            }
        }
    }

    // The row of a lane's query number `i`, turned by `delta`.
    uint32_t row_of(uint32_t lane, uint32_t i, Pos delta) const {
        if (delta == 0) return lanes_[lane].queries[i].item;
        for (const auto& [known, first] : turned_[lane]) {
            if (known == delta) return first + i;
        }
        assert(false);
        return 0;
    }

    void add_segments() {
        for (size_t begin = 0, end = 0; begin < intervals_.size(); begin = end) {
            end = chain_end(begin);
            add_segment(begin, end);
        }
        for (const Lane& lane : lanes_) {
            for (const Lane::Query& query : lane.queries)
                out_.attended_cells += query.end - query.begin;
        }
    }

    void add_segment(size_t begin, size_t end) {
        Cascade::Segment segment;
        segment.first_run = static_cast<uint32_t>(out_.runs.size());
        segment.first_query = static_cast<uint32_t>(out_.queries.size());
        segment.first_column = out_.n_columns;
        segment.n_columns = count(begin, end);
        const Interval& head = intervals_[begin];
        for (uint32_t i = 0; i < head.n; i++)
            add_queries(sights_[head.first + i], segment.n_columns);
        segment.n_queries = static_cast<uint32_t>(out_.queries.size()) - segment.first_query;
        if (segment.n_queries == 0) return;
        for (size_t i = begin; i < end; i++)
            add_rows(segment, sights_[intervals_[i].first]);
        out_.n_columns += segment.n_columns;
        out_.segments.push_back(segment);
    }

    // The lane's queries that see any of the `n` columns from where `sight` begins.
    void add_queries(const Sight& sight, uint32_t n) {
        const Lane& lane = lanes_[sight.lane];
        for (uint32_t i = 0; i < lane.queries.size(); i++) {
            const Lane::Query& query = lane.queries[i];
            const uint32_t begin = std::max(query.begin, sight.column);
            const uint32_t end = std::min(query.end, sight.column + n);
            if (begin >= end) continue;
            out_.queries.push_back({row_of(sight.lane, i, sight.delta), begin - sight.column,
                                    end - sight.column, query.pos - sight.delta});
            items_.push_back(query.item);
        }
    }

    void add_rows(Cascade::Segment& segment, const Sight& sight) {
        if (segment.n_runs > 0 && out_.runs.back().end() == sight.row) {
            out_.runs.back().count += sight.count;
        } else {
            out_.runs.push_back({sight.row, sight.count, 0});
            segment.n_runs++;
        }
    }

    void list_parts() {
        out_.first_part.assign(out_.n_tokens + 1, 0);
        for (const uint32_t item : items_)
            out_.first_part[item + 1]++;
        for (uint32_t item = 0; item < out_.n_tokens; item++)
            out_.first_part[item + 1] += out_.first_part[item];
        out_.parts.resize(items_.size());
        std::vector<uint32_t> next(out_.first_part.begin(), out_.first_part.end() - 1);
        for (uint32_t s = 0; s < out_.segments.size(); s++) {
            const Cascade::Segment& segment = out_.segments[s];
            for (uint32_t q = 0; q < segment.n_queries; q++)
                out_.parts[next[items_[segment.first_query + q]]++] = {s, q};
        }
    }

    const bool share_;
    const std::vector<Lane> lanes_;
    std::vector<Sight> sights_;
    std::vector<Interval> intervals_;
    // Of each lane: deltas other than 0, and where the queries turned by them begin.
    std::vector<std::vector<std::pair<Pos, uint32_t>>> turned_;
    std::vector<uint32_t> items_;  // of out_.queries
    Cascade out_;
};

}  // namespace

Cascade make_cascade(const Cells& cells, const UbatchPlan& ubatch, uint32_t group, bool share) {
    return CascadeBuilder(cells, ubatch, group, share).build();
}

}  // namespace cellar
