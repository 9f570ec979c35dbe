#include "attention/lanes.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace cellar {
namespace {

bool contains_all(std::span<const SeqId> seqs, std::span<const SeqId> wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](SeqId seq) {
        return std::find(seqs.begin(), seqs.end(), seq) != seqs.end();
    });
}

class LaneFinder {
public:
    LaneFinder(const Cells& cells, const UbatchPlan& ubatch, uint32_t group)
        : cells_(cells), ubatch_(ubatch), group_(group), kind_(cells.kind(group)) {}

    std::vector<Lane> find() {
        group_items();
        for (Lane& lane : lanes_) {
            add_committed(lane);
            add_own(lane);
            if (kind_.slides()) limit(lane);
        }
        return std::move(lanes_);
    }

private:
    // A lane for each set of sequences, in the order in which they come in the ubatch.
    void group_items() {
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
            for (uint32_t item = run.first; item < run.first + run.count; item++)
                lanes_.back().queries.push_back({item, 0, 0, pos(item)});
            coupled_ = coupled_ || run.seqs.size() > 1;
        }
        std::sort(lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) {
            return a.queries[0].item < b.queries[0].item;
        });
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
    // it stood; its cells are the same there. What the window hides from the first item, and so
    // from all, is left out by whole spans, so that a step costs a window and not a sequence.
    void add_committed(Lane& lane) const {
        for (const Span& span : cells_.spans(lane.seqs[0], group_)) {
            if (kind_.slides() && hides(lane.queries[0].pos, last_pos(span))) continue;
            add(lane, {value(span.page) * cells_.page_size() + span.first, span.count, span.delta});
        }
    }

    // The cells that this ubatch writes for all of the lane's sequences, and how many of them each
    // item sees: those up to its own position, or in encoders those behind it too. With a causal
    // kind the last query sees them all, whatever the batch was: an item of more sequences cannot
    // come behind it, since some of those were not extended by it, and a batch whose item belongs
    // to sequences that see different cells is refused when it is planned (check_coupled).
    void add_own(Lane& lane) const {
        const std::vector<uint32_t> written = written_for(lane);
        const uint32_t n_before = lane.n_columns;
        size_t seen = 0;
        for (Lane::Query& query : lane.queries) {
            while (seen < written.size() && pos(written[seen]) < kind_.sees(query.pos).end)
                seen++;
            query.end = n_before + static_cast<uint32_t>(seen);
        }
        assert(seen == written.size() || !kind_.is_causal());
        for (const uint32_t item : written) {
            add(lane, {ubatch_.groups[group_].cells[item], 1, 0});
        }
    }

    // Begins each query's columns where its window begins, and leaves out those that none sees.
    void limit(Lane& lane) const {
        std::vector<Pos> positions = column_positions(lane);
        if (!std::is_sorted(positions.begin(), positions.end())) {
            sort_columns(lane, positions);
            positions = column_positions(lane);
        }
        uint32_t first = lane.n_columns;
        for (Lane::Query& query : lane.queries) {
            const auto begin =
                std::partition_point(positions.begin(), positions.begin() + query.end,
                                     [&](Pos pos) { return hides(query.pos, pos); });
            query.begin = static_cast<uint32_t>(begin - positions.begin());
            first = std::min(first, query.begin);
        }
        leave_out(lane, first);
    }

    // The lane's first `n` columns.
    static void leave_out(Lane& lane, uint32_t n) {
        lane.n_columns -= n;
        for (Lane::Query& query : lane.queries) {
            query.begin -= n;
            query.end -= n;
        }
        auto run = lane.runs.begin();
        for (; n > 0 && n >= run->count; ++run)
            n -= run->count;
        if (n > 0) *run = {run->row + n, run->count - n, run->delta};
        lane.runs.erase(lane.runs.begin(), run);
    }

    // Shifts can lay spans over each other; then the columns in order of position are single cells.
    void sort_columns(Lane& lane, const std::vector<Pos>& positions) const {
        std::vector<RowRun> cells;
        for (const RowRun& run : lane.runs) {
            for (uint32_t row = run.row; row < run.end(); row++)
                cells.push_back({row, 1, run.delta});
        }
        std::vector<uint32_t> order(cells.size());
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return positions[a] < positions[b]; });
        lane.runs.clear();
        lane.n_columns = 0;
        for (const uint32_t column : order)
            add(lane, cells[column]);
    }

    std::vector<Pos> column_positions(const Lane& lane) const {
        const PagePool& pool = cells_.pool(group_);
        std::vector<Pos> positions;
        positions.reserve(lane.n_columns);
        for (const RowRun& run : lane.runs) {
            for (uint32_t row = run.row; row < run.end(); row++)
                positions.push_back(
                    pool.pos(PageId{row / pool.page_size()}, row % pool.page_size()) + run.delta);
        }
        return positions;
    }

    // Items that belong to all sequences of the lane, and maybe to more.
    std::vector<uint32_t> written_for(const Lane& lane) const {
        std::vector<uint32_t> items;
        if (!coupled_) {
            for (const Lane::Query& query : lane.queries)
                items.push_back(query.item);
            return items;
        }
        for (const UbatchRun& run : ubatch_.runs) {
            if (!contains_all(run.seqs, lane.seqs)) continue;
            for (uint32_t k = 0; k < run.count; k++)
                items.push_back(run.first + k);
        }
        return items;
    }

    // Whether a position lies before the window of a query.
    bool hides(Pos query, Pos pos) const { return pos < kind_.sees(query).begin; }

    Pos last_pos(const Span& span) const { return cells_.pos(group_, span, span.count - 1u); }

    Pos pos(uint32_t item) const { return ubatch_.positions[size_t{item} * cells_.n_pos()]; }

    const Cells& cells_;
    const UbatchPlan& ubatch_;
    const uint32_t group_;
    const GroupKind kind_;
    bool coupled_ = false;  // some items belong to several sequences
    std::vector<Lane> lanes_;
};

}  // namespace

std::vector<Lane> find_lanes(const Cells& cells, const UbatchPlan& ubatch, uint32_t group) {
    return LaneFinder(cells, ubatch, group).find();
}

}  // namespace cellar
