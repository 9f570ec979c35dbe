#include "attention/schedule.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "attention/lanes.h"

namespace cellar {
namespace {

// Rows that at least one lane sees moved by `delta`, and the column where they begin when all share
// one stream.
struct Interval {
    Pos delta = 0;
    uint32_t row = 0;
    uint32_t end = 0;
    uint32_t column = 0;
};

// Sorts intervals by delta and row, and joins those of one delta that touch. O(n log n).
void join(std::vector<Interval>& intervals) {
    std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
        return std::tie(a.delta, a.row) < std::tie(b.delta, b.row);
    });
    size_t n = 0;
    for (const Interval& next : intervals) {
        if (n > 0 && next.delta == intervals[n - 1].delta && next.row <= intervals[n - 1].end) {
            intervals[n - 1].end = std::max(intervals[n - 1].end, next.end);
        } else {
            intervals[n++] = next;
        }
    }
    intervals.resize(n);
}

// Distinct rows of joined intervals, whatever their deltas.
uint64_t count_rows(std::vector<Interval> intervals) {
    for (Interval& interval : intervals)
        interval.delta = 0;
    join(intervals);
    uint64_t n = 0;
    for (const Interval& interval : intervals)
        n += interval.end - interval.row;
    return n;
}

// What it costs to gather one row, in queries that skip one column by their mask. Measured on the
// CPU with SmolLM2's heads: 25 to 80 ns a masked column, 80 to 500 ns a row (as it leaves the
// cache). On backends that compute masked columns too, the price of a row is less.
constexpr uint64_t kRowCost = 4;

class ScheduleBuilder {
public:
    ScheduleBuilder(const Cells& cells, const UbatchPlan& ubatch, uint32_t group)
        : pool_(cells.pool(group)), ubatch_(ubatch), lanes_(find_lanes(cells, ubatch, group)) {}

    Schedule build() {
        find_intervals();
        out_.n_tokens = static_cast<uint32_t>(ubatch_.items.size());
        out_.queries.resize(out_.n_tokens);
        if (apart_is_cheaper()) {
            lay_out_apart();
        } else {
            lay_out_together();
        }
        for (const Schedule::Query& query : out_.queries)
            out_.attended_cells += query.end - query.begin;
        return std::move(out_);
    }

private:
    // The distinct rows of all lanes, those with different deltas apart.
    void find_intervals() {
        for (const Lane& lane : lanes_) {
            for (const RowRun& run : lane.runs)
                intervals_.push_back({run.delta, run.row, run.end(), 0});
        }
        join(intervals_);
        for (Interval& interval : intervals_) {
            interval.column = n_columns_;
            n_columns_ += interval.end - interval.row;
            turned_ = turned_ || interval.delta != 0;
        }
        out_.read_cells = turned_ ? count_rows(intervals_) : n_columns_;
    }

    // Together, each distinct row is gathered once, but every query runs over the columns of all
    // sequences. Apart, queries meet their own columns only, but what sequences share is gathered
    // for each of them. So apart wins for private contexts, together for shared ones. Streams must
    // have equal sizes: apart is possible only if all lanes have as many items.
    bool apart_is_cheaper() const {
        uint32_t longest = 0;
        for (const Lane& lane : lanes_) {
            if (lane.queries.size() != lanes_[0].queries.size()) return false;
            longest = std::max(longest, lane.n_columns);
        }
        const uint64_t n_queries = ubatch_.items.size();
        const uint64_t together = length_class(n_columns_);
        const uint64_t apart = length_class(longest);
        return lanes_.size() > 1 &&
               (kRowCost * lanes_.size() + n_queries) * apart < (kRowCost + n_queries) * together;
    }

    void make_rows(uint32_t n_streams, uint32_t length) {
        out_.n_streams = n_streams;
        out_.length = length;
        const uint32_t zero_row = pool_.max_pages() * pool_.page_size();
        out_.rows.assign(size_t{n_streams} * length, static_cast<int32_t>(zero_row));
        out_.positions.assign(size_t{n_streams} * length, 0);
        if (turned_) out_.turns.assign(size_t{n_streams} * length, 0);
    }

    // Puts rows [row, end), moved by `delta`, into columns `at` and following, counted over all
    // streams.
    void put_rows(size_t at, uint32_t row, uint32_t end, Pos delta) {
        if (turned_) std::fill_n(out_.turns.data() + at, end - row, delta);
        std::iota(out_.rows.data() + at, out_.rows.data() + at + (end - row),
                  static_cast<int32_t>(row));
        const uint32_t page_size = pool_.page_size();
        while (row < end) {  // page by page, since a division for each cell would cost more
            const PageId page{row / page_size};
            const uint32_t first = row % page_size;
            const uint32_t n = std::min(page_size - first, end - row);
            for (uint32_t i = 0; i < n; i++)
                out_.positions[at + i] = pool_.pos(page, first + i);
            at += n;
            row += n;
        }
    }

    void add_view(uint32_t stream, const Lane& lane) {
        out_.views.push_back({stream, static_cast<uint32_t>(out_.pieces.size()),
                              static_cast<uint32_t>(lane.runs.size())});
    }

    Schedule::Query query(const Lane& lane, size_t i) const {
        const Lane::Query& seen = lane.queries[i];
        return {static_cast<uint32_t>(out_.views.size()) - 1, seen.begin, seen.end, seen.pos};
    }

    void lay_out_together() {
        make_rows(1, length_class(n_columns_));
        for (const Interval& i : intervals_)
            put_rows(i.column, i.row, i.end, i.delta);
        out_.order.resize(out_.n_tokens);
        std::iota(out_.order.begin(), out_.order.end(), 0u);
        for (const Lane& lane : lanes_) {
            add_view(0, lane);
            for (const RowRun& run : lane.runs) {
                const auto after =
                    std::upper_bound(intervals_.begin(), intervals_.end(), run,
                                     [](const RowRun& seen, const Interval& interval) {
                                         return std::tie(seen.delta, seen.row) <
                                                std::tie(interval.delta, interval.row);
                                     });
                const Interval& interval = *(after - 1);
                out_.pieces.push_back(
                    {interval.column + run.row - interval.row, run.count, run.delta});
            }
            for (size_t i = 0; i < lane.queries.size(); i++) {
                out_.queries[lane.queries[i].item] = query(lane, i);
            }
        }
    }

    void lay_out_apart() {
        uint32_t longest = 0;
        for (const Lane& lane : lanes_)
            longest = std::max(longest, lane.n_columns);
        make_rows(static_cast<uint32_t>(lanes_.size()), length_class(longest));
        out_.order.reserve(out_.n_tokens);
        for (uint32_t stream = 0; stream < lanes_.size(); stream++) {
            const Lane& lane = lanes_[stream];
            add_view(stream, lane);
            uint32_t column = 0;
            for (const RowRun& run : lane.runs) {
                put_rows(size_t{stream} * out_.length + column, run.row, run.end(), run.delta);
                out_.pieces.push_back({column, run.count, run.delta});
                column += run.count;
            }
            for (size_t i = 0; i < lane.queries.size(); i++) {
                out_.queries[out_.order.size()] = query(lane, i);
                out_.order.push_back(lane.queries[i].item);
            }
        }
        out_.in_order = std::is_sorted(out_.order.begin(), out_.order.end());
    }

    const PagePool& pool_;
    const UbatchPlan& ubatch_;
    const std::vector<Lane> lanes_;
    std::vector<Interval> intervals_;  // ascending, apart from each other
    uint32_t n_columns_ = 0;           // of `intervals_`
    bool turned_ = false;              // some delta is not 0
    Schedule out_;
};

}  // namespace

Schedule make_schedule(const Cells& cells, const UbatchPlan& ubatch, uint32_t group) {
    return ScheduleBuilder(cells, ubatch, group).build();
}

// A graph is built anew when the class changes (0.2 ms for SmolLM2's 30 layers), and a padded
// column costs a step about half of a real one (2 to 8 us over those layers). For a sequence that
// grows by a token a step, classes of 32 cost 0.006 ms of building and 0.04 ms of padding a step.
// Beyond 1024 columns a sixteenth of the power of two below bounds the waste by 6 %, and lets steps
// of mixed lengths meet in the few graphs that are kept.
uint32_t length_class(uint32_t n_columns) {
    const uint32_t step = std::max(32u, std::bit_floor(n_columns) / 16);
    return std::max(1u, (n_columns + step - 1) / step) * step;
}

}  // namespace cellar
