#include "attention/schedule.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <span>

namespace cellar {
namespace {

// Neighbouring rows of the pool, all of which a sequence sees moved by the same delta.
struct RowRun {
    uint32_t row = 0;
    uint32_t count = 0;
    Pos delta = 0;

    uint32_t end() const { return row + count; }
};

// The items of a ubatch that extend the same sequences, and what they can see.
struct Lane {
    std::span<const SeqId> seqs;
    std::vector<uint32_t> items;      // of the ubatch, in order
    std::vector<uint32_t> n_visible;  // by item
    std::vector<RowRun> runs;         // in order of position
    uint32_t n_columns = 0;           // cells in `runs`
};

// Rows that at least one lane sees, and the column where they begin when all share one stream.
struct Interval {
    uint32_t row = 0;
    uint32_t end = 0;
    uint32_t column = 0;
};

// What it costs to gather one row, in queries that skip one column by their mask. Measured on the
// CPU with SmolLM2's heads: 25 to 80 ns a masked column, 80 to 500 ns a row (as it leaves the
// cache). On backends that compute masked columns too, the price of a row is less.
constexpr uint64_t kRowCost = 4;

bool contains_all(std::span<const SeqId> seqs, std::span<const SeqId> wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](SeqId seq) {
        return std::find(seqs.begin(), seqs.end(), seq) != seqs.end();
    });
}

class ScheduleBuilder {
public:
    ScheduleBuilder(const Cells& cells, const UbatchPlan& ubatch, uint32_t group)
        : cells_(cells), pool_(cells.pool(group)), ubatch_(ubatch), group_(group) {}

    Schedule build() {
        find_lanes();
        for (Lane& lane : lanes_) {
            add_committed(lane);
            add_own(lane);
        }
        find_intervals();
        out_.n_tokens = static_cast<uint32_t>(ubatch_.items.size());
        out_.queries.resize(out_.n_tokens);
        if (apart_is_cheaper()) {
            lay_out_apart();
        } else {
            lay_out_together();
        }
        for (const Schedule::Query& query : out_.queries)
            out_.attended_cells += query.n_visible;
        return std::move(out_);
    }

private:
    // A lane for each set of sequences, in the order in which they come in the ubatch.
    void find_lanes() {
        const auto& runs = ubatch_.runs;
        std::vector<uint32_t> by_seqs(runs.size());
        std::iota(by_seqs.begin(), by_seqs.end(), 0u);
        const auto before = [&](uint32_t a, uint32_t b) {
            return std::lexicographical_compare(runs[a].seqs.begin(), runs[a].seqs.end(),
                                                runs[b].seqs.begin(), runs[b].seqs.end());
        };
        std::stable_sort(by_seqs.begin(), by_seqs.end(), before);
        for (size_t i = 0; i < by_seqs.size(); i++) {
            const UbatchRun& run = runs[by_seqs[i]];
            if (i == 0 || before(by_seqs[i - 1], by_seqs[i])) {
                lanes_.emplace_back();
                lanes_.back().seqs = run.seqs;
            }
            for (uint32_t k = 0; k < run.count; k++)
                lanes_.back().items.push_back(run.first + k);
            coupled_ = coupled_ || run.seqs.size() > 1;
        }
        std::sort(lanes_.begin(), lanes_.end(),
                  [](const Lane& a, const Lane& b) { return a.items[0] < b.items[0]; });
    }

    void add(Lane& lane, RowRun run) const {
        lane.n_columns += run.count;
        if (!lane.runs.empty() && lane.runs.back().end() == run.row &&
            lane.runs.back().delta == run.delta) {
            lane.runs.back().count += run.count;
        } else {
            lane.runs.push_back(run);
        }
    }

    // What the lane's sequences hold already: all of them the same, and all of it before the
    // ubatch, since positions grow. A tail that was copied for this ubatch is still listed where
    // it stood; its cells are the same there.
    void add_committed(Lane& lane) const {
        for (const Span& span : cells_.spans(lane.seqs[0], group_)) {
            add(lane, {value(span.page) * pool_.page_size() + span.first, span.count, span.delta});
        }
    }

    // The cells that this ubatch writes for all of the lane's sequences, and how many of them each
    // item sees: those up to its own position.
    void add_own(Lane& lane) const {
        const std::vector<uint32_t> written = coupled_ ? written_for(lane) : lane.items;
        const uint32_t n_before = lane.n_columns;
        size_t seen = 0;
        lane.n_visible.reserve(lane.items.size());
        for (const uint32_t item : lane.items) {
            while (seen < written.size() && pos(written[seen]) <= pos(item))
                seen++;
            lane.n_visible.push_back(n_before + static_cast<uint32_t>(seen));
        }
        assert(seen == written.size());
        for (const uint32_t item : written) {
            add(lane, {ubatch_.groups[group_].cells[item], 1, 0});
        }
    }

    // Items that belong to all sequences of the lane, and maybe to more.
    std::vector<uint32_t> written_for(const Lane& lane) const {
        std::vector<uint32_t> items;
        for (const UbatchRun& run : ubatch_.runs) {
            if (!contains_all(run.seqs, lane.seqs)) continue;
            for (uint32_t k = 0; k < run.count; k++)
                items.push_back(run.first + k);
        }
        return items;
    }

    // The distinct rows of all lanes.
    void find_intervals() {
        for (const Lane& lane : lanes_) {
            for (const RowRun& run : lane.runs)
                intervals_.push_back({run.row, run.end(), 0});
        }
        std::sort(intervals_.begin(), intervals_.end(),
                  [](const Interval& a, const Interval& b) { return a.row < b.row; });
        size_t n = 0;
        for (const Interval& next : intervals_) {
            if (n > 0 && next.row <= intervals_[n - 1].end) {
                intervals_[n - 1].end = std::max(intervals_[n - 1].end, next.end);
            } else {
                intervals_[n++] = next;
            }
        }
        intervals_.resize(n);
        uint32_t column = 0;
        for (Interval& interval : intervals_) {
            interval.column = column;
            column += interval.end - interval.row;
        }
        out_.read_cells = column;
    }

    // Together, each distinct row is gathered once, but every query runs over the columns of all
    // sequences. Apart, queries meet their own columns only, but what sequences share is gathered
    // for each of them. So apart wins for private contexts, together for shared ones. Streams must
    // have equal sizes: apart is possible only if all lanes have as many items.
    bool apart_is_cheaper() const {
        uint32_t longest = 0;
        for (const Lane& lane : lanes_) {
            if (lane.items.size() != lanes_[0].items.size()) return false;
            longest = std::max(longest, lane.n_columns);
        }
        const uint64_t n_queries = ubatch_.items.size();
        const uint64_t together = length_class(static_cast<uint32_t>(out_.read_cells));
        const uint64_t apart = length_class(longest);
        return lanes_.size() > 1 &&
               (kRowCost * lanes_.size() + n_queries) * apart < (kRowCost + n_queries) * together;
    }

    void make_rows(uint32_t n_streams, uint32_t length) {
        out_.n_streams = n_streams;
        out_.length = length;
        const uint32_t zero_row = pool_.n_pages() * pool_.page_size();
        out_.rows.assign(size_t{n_streams} * length, static_cast<int32_t>(zero_row));
        out_.positions.assign(size_t{n_streams} * length, 0);
    }

    // Puts rows [row, end) into columns `at` and following, counted over all streams.
    void put_rows(size_t at, uint32_t row, uint32_t end) {
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
        return {static_cast<uint32_t>(out_.views.size()) - 1, lane.n_visible[i],
                pos(lane.items[i])};
    }

    void lay_out_together() {
        make_rows(1, length_class(static_cast<uint32_t>(out_.read_cells)));
        for (const Interval& i : intervals_)
            put_rows(i.column, i.row, i.end);
        out_.order.resize(out_.n_tokens);
        std::iota(out_.order.begin(), out_.order.end(), 0u);
        for (const Lane& lane : lanes_) {
            add_view(0, lane);
            for (const RowRun& run : lane.runs) {
                const auto after = std::upper_bound(
                    intervals_.begin(), intervals_.end(), run.row,
                    [](uint32_t row, const Interval& interval) { return row < interval.row; });
                const Interval& interval = *(after - 1);
                out_.pieces.push_back(
                    {interval.column + run.row - interval.row, run.count, run.delta});
            }
            for (size_t i = 0; i < lane.items.size(); i++) {
                out_.queries[lane.items[i]] = query(lane, i);
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
                put_rows(size_t{stream} * out_.length + column, run.row, run.end());
                out_.pieces.push_back({column, run.count, run.delta});
                column += run.count;
            }
            for (size_t i = 0; i < lane.items.size(); i++) {
                out_.queries[out_.order.size()] = query(lane, i);
                out_.order.push_back(lane.items[i]);
            }
        }
        out_.in_order = std::is_sorted(out_.order.begin(), out_.order.end());
    }

    Pos pos(uint32_t item) const { return ubatch_.positions[size_t{item} * cells_.n_pos()]; }

    const Cells& cells_;
    const PagePool& pool_;
    const UbatchPlan& ubatch_;
    const uint32_t group_;
    bool coupled_ = false;  // some items belong to several sequences
    std::vector<Lane> lanes_;
    std::vector<Interval> intervals_;  // ascending, apart from each other
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
