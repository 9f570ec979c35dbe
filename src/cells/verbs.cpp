// The verbs of Cells.

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "cells/cells.h"

namespace cellar {
namespace {

Result<Range> read_range(Pos p0, Pos p1) {
    const Range range = make_range(p0, p1);
    if (range.begin <= range.end) return range;
    return fail(Code::kBadRange, fmt::format("the range [{}, {}) ends before it begins", p0, p1));
}

// Cells of the track in `range`. O(spans before the range's end).
uint64_t count_cells(const Track& track, const PagePool& pool, Range range) {
    return track.cells_before(pool, range.end) - track.cells_before(pool, range.begin);
}

// Packs cells densely into fresh pages: the spans that come of it, and the moves that fill them.
class Packer {
public:
    Packer(PagePool& pool, uint32_t group, std::vector<CellMove>& moves)
        : pool_(pool), group_(group), moves_(moves) {}

    // Copies a span's cells to positions pos / divisor; appends the spans that see the copies.
    void pack(const Span& source, int32_t divisor, std::vector<Span>& out) {
        for (uint32_t done = 0; done < source.count;) {
            if (page_ == kNoPage || end_ == pool_.page_size()) open_page();
            const uint32_t n = std::min<uint32_t>(source.count - done, pool_.page_size() - end_);
            const uint32_t from = source.first + done;
            for (uint32_t i = 0; i < n; i++)
                place(source, from + i, end_ + i, divisor);
            pool_.hold(source.page, from + n);
            moves_.push_back({group_,
                              {source.page, page_, static_cast<uint16_t>(from),
                               static_cast<uint16_t>(end_), static_cast<uint16_t>(n)},
                              true});
            see(n, out);
            done += n;
        }
    }

private:
    void open_page() {
        const auto page = pool_.take();
        assert(page && "the caller has checked the room");
        page_ = *page;
        end_ = 0;
    }

    void place(const Span& source, uint32_t from, uint32_t to, int32_t divisor) {
        Pos components[4];
        for (uint32_t c = 0; c < pool_.n_pos(); c++)
            components[c] = (pool_.component(source.page, from, c) + source.delta) / divisor;
        pool_.set_pos(page_, to, std::span<const Pos>(components, pool_.n_pos()));
    }

    // The copies go on from the last span where their positions allow it.
    void see(uint32_t n, std::vector<Span>& out) {
        const Span copy{page_, static_cast<uint16_t>(end_), static_cast<uint16_t>(n), 0};
        if (!out.empty() && continues(pool_, out.back(), copy)) {
            pool_.move_end(page_, end_, copy.end());
            out.back().count = static_cast<uint16_t>(out.back().count + n);
        } else {
            if (end_ == 0) {
                pool_.move_end(page_, 0, copy.end());
            } else {
                pool_.hold(page_, copy.end());
            }
            out.push_back(copy);
        }
        end_ += n;
    }

    PagePool& pool_;
    const uint32_t group_;
    std::vector<CellMove>& moves_;
    PageId page_ = kNoPage;
    uint32_t end_ = 0;
};

}  // namespace

Result<void> Cells::can_rm(SeqId seq, Pos p0, Pos p1) const {
    if (auto ok = check_verb(seq, true); !ok) return ok;
    const auto range = read_range(p0, p1);
    if (!range) return tl::unexpected(range.error());
    if (range->empty() || !lets_go_) return {};
    for (const SeqId id : selected(seq))
        if (auto ok = check_rm(id, *range); !ok) return ok;
    return {};
}

Result<void> Cells::seq_rm(SeqId seq, Pos p0, Pos p1) {
    if (auto ok = can_rm(seq, p0, p1); !ok) return ok;
    const Range range = make_range(p0, p1);
    if (range.empty()) return {};
    for (const SeqId id : selected(seq)) {
        Sequence& sequence = *find(id);
        for (uint32_t g = 0; g < n_groups(); g++)
            sequence.tracks[g].remove(pools_[g], range);
        drop_checkpoints(sequence, range);
        drop_lost_checkpoints(id);
        drop_if_empty(id);
    }
    settle();
    return {};
}

Result<void> Cells::seq_cp(SeqId from, SeqId to, Pos p0, Pos p1) {
    if (auto ok = check_verb(from, false); !ok) return ok;
    if (auto ok = check_verb(to, false); !ok) return ok;
    auto range = read_range(p0, p1);
    if (!range) return pass(std::move(range));
    if (from == to || range->empty()) return {};
    if (auto ok = check_cp(from, to, *range); !ok) return ok;
    Sequence& target = find_or_add(to);  // first: adding one may move the others
    const Sequence* source = find(from);
    for (uint32_t g = 0; g < n_groups(); g++) {
        target.tracks[g].remove(pools_[g], *range);
        if (source != nullptr) target.tracks[g].adopt(pools_[g], source->tracks[g], *range);
    }
    drop_checkpoints(target, *range);
    if (source != nullptr) copy_checkpoints(*source, target, *range);
    drop_lost_checkpoints(to);
    drop_if_empty(to);
    limit_checkpoints(nullptr);
    settle();
    return {};
}

Result<void> Cells::seq_keep(SeqId seq) {
    if (auto ok = check_verb(seq, true); !ok) return ok;
    if (seq == kEverySeq) return {};
    for (const SeqId id : sequences())
        if (id != seq) drop(id);
    settle();
    return {};
}

Result<void> Cells::seq_add(SeqId seq, Pos p0, Pos p1, Pos delta) {
    if (auto ok = check_verb(seq, true); !ok) return ok;
    auto range = read_range(p0, p1);
    if (!range) return pass(std::move(range));
    if (range->empty() || delta == 0) return {};
    const std::vector<SeqId> ids = selected(seq);
    std::vector<uint64_t> needed(n_groups(), 0);  // pages
    std::vector<bool> reencodes;                  // by sequence, then by group
    for (const SeqId id : ids) {
        if (auto ok = check_shift(id, *range, delta); !ok) return ok;
        const std::vector<Track>& tracks = find(id)->tracks;
        for (uint32_t g = 0; g < n_groups(); g++) {
            const uint64_t cells = cells_to_reencode(tracks[g], g, *range, delta);
            needed[g] += pages(g, cells);
            reencodes.push_back(cells > 0);
        }
    }
    if (auto ok = make_room(needed); !ok) return ok;
    for (size_t i = 0; i < ids.size(); i++) {
        Sequence& sequence = *find(ids[i]);
        for (uint32_t g = 0; g < n_groups(); g++) {
            sequence.tracks[g].shift(pools_[g], *range, delta);
            if (reencodes[i * n_groups() + g]) reencode(sequence.tracks[g], g, {0, kMaxPos}, 1);
        }
        move_checkpoints(sequence, *range, delta);
        drop_lost_checkpoints(ids[i]);
        drop_if_empty(ids[i]);
    }
    settle();
    return {};
}

bool Cells::can_shift() const {
    return std::none_of(kinds_.begin(), kinds_.end(),
                        [](const GroupKind& kind) { return kind.is_recurrent(); });
}

Result<void> Cells::seq_div(SeqId seq, Pos p0, Pos p1, int32_t d) {
    if (auto ok = check_verb(seq, true); !ok) return ok;
    auto range = read_range(p0, p1);
    if (!range) return pass(std::move(range));
    if (d < 1) return fail(Code::kInvalidArgument, fmt::format("positions divided by {}", d));
    if (range->empty() || d == 1) return {};
    const std::vector<SeqId> ids = selected(seq);
    std::vector<uint64_t> needed(n_groups(), 0);  // pages
    for (const SeqId id : ids) {
        if (auto ok = check_scalar(id, *range); !ok) return ok;
        if (auto ok = check_whole_states(id, *range); !ok) return ok;
        for (uint32_t g = 0; g < n_groups(); g++)
            if (!kinds_[g].is_recurrent())
                needed[g] += pages(g, count_cells(find(id)->tracks[g], pools_[g], *range));
    }
    if (auto ok = make_room(needed); !ok) return ok;
    for (const SeqId id : ids) {
        for (uint32_t g = 0; g < n_groups(); g++)
            divide(find(id)->tracks[g], g, *range, d);
        drop_checkpoints(*find(id), *range);
        expire(id, nullptr);
    }
    settle();
    return {};
}

Result<void> Cells::clear() {
    if (auto ok = check_verb(kEverySeq, true); !ok) return ok;
    finish_moves();
    for (auto& entry : sequences_)
        for (uint32_t g = 0; g < n_groups(); g++)
            entry.second.tracks[g].release(pools_[g]);
    sequences_.clear();
    n_checkpoints_ = 0;
    settle();
    return {};
}

Result<void> Cells::check_moves_done() const {
    if (pending_.empty()) return {};
    return fail(Code::kBusy, fmt::format("{} moves of cells are pending", pending_.size()));
}

void Cells::finish_moves() {
    for (const CellMove& move : pending_)
        pools_[move.group].release(move.copy.from,
                                   move.copy.from_first + uint32_t{move.copy.count});
    pending_.clear();
    settle();
}

Result<void> Cells::check_verb(SeqId seq, bool wildcard) const {
    if (busy()) return fail(Code::kBusy, "a plan is open");
    if (value(seq) >= 0 || (wildcard && seq == kEverySeq)) return {};
    return fail(Code::kInvalidArgument, fmt::format("{} is no sequence here", value(seq)));
}

std::vector<SeqId> Cells::selected(SeqId seq) const {
    if (seq == kEverySeq) return sequences();
    if (find(seq) == nullptr) return {};
    return {seq};
}

void Cells::drop(SeqId seq) {
    Sequence& sequence = *find(seq);
    for (uint32_t g = 0; g < n_groups(); g++)
        sequence.tracks[g].release(pools_[g]);
    drop_checkpoints(sequence, {0, kMaxPos});
    sequences_.erase(value(seq));
}

void Cells::drop_if_empty(SeqId seq) {
    const auto entry = sequences_.find(value(seq));
    const bool empty = std::all_of(entry->second.tracks.begin(), entry->second.tracks.end(),
                                   [](const Track& track) { return track.empty(); });
    if (!empty) return;
    drop_checkpoints(entry->second, {0, kMaxPos});
    sequences_.erase(entry);
}

// No component of a position in `range` may pass the greatest position.
Result<void> Cells::check_shift(SeqId seq, Range range, int64_t delta) const {
    if (auto ok = check_whole_states(seq, range); !ok) return ok;
    const std::vector<Track>& tracks = find(seq)->tracks;
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (kinds_[g].is_recurrent() && !tracks[g].empty() && range.contains(tracks[g].begin()) &&
            tracks[g].begin() + delta < 0)
            return fail(Code::kUnsupported,
                        fmt::format("sequence {} moved by {} would lose its first tokens, which "
                                    "its state has taken up",
                                    value(seq), delta));
        const Pos greatest = tracks[g].pos_max_before(pools_[g], range.end);
        if (greatest >= range.begin && greatest + delta >= kMaxPos)
            return fail(
                Code::kBadRange,
                fmt::format("position {} of sequence {} moved by {} passes the greatest, {}",
                            greatest, value(seq), delta, kMaxPos - 1));
    }
    if (auto ok = check_components(seq, range, delta); !ok) return ok;
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (!kinds_[g].slides() || !lets_go(g)) continue;
        const auto shift = static_cast<Pos>(delta);
        if (auto ok = check_shifted_window(seq, g, range, shift); !ok) return ok;
    }
    return {};
}

// Whether rows and columns of images, which move as their time does, stay positions too.
Result<void> Cells::check_components(SeqId seq, Range range, int64_t delta) const {
    if (n_pos_ == 1 || delta <= 0) return {};
    const std::vector<Track>& tracks = find(seq)->tracks;
    for (uint32_t g = 0; g < n_groups(); g++) {
        const PagePool& pool = pools_[g];
        for (const Span& s : tracks[g].spans()) {
            for (uint32_t i = 0; i < s.count && !pool.counts_up(s.page); i++) {
                if (!range.contains(pos(g, s, i))) continue;
                for (uint32_t c = 1; c < n_pos_; c++) {
                    const int64_t moved =
                        int64_t{pool.component(s.page, s.first + i, c)} + s.delta + delta;
                    if (moved >= kMaxPos)
                        return fail(
                            Code::kBadRange,
                            fmt::format("component {} of position {} of sequence {} moved by {} "
                                        "passes the greatest, {}",
                                        c, pos(g, s, i), value(seq), delta, kMaxPos - 1));
                }
            }
        }
    }
    return {};
}

// Image cells share their time and differ in row and column: there is no position to divide. The
// fourth component tells nothing: texts leave it 0 or let it count along, and no model turns by it.
Result<void> Cells::check_scalar(SeqId seq, Range range) const {
    if (n_pos_ == 1) return {};
    const std::vector<Track>& tracks = find(seq)->tracks;
    for (uint32_t g = 0; g < n_groups(); g++) {
        const PagePool& pool = pools_[g];
        for (const Span& s : tracks[g].spans()) {
            for (uint32_t i = 0; i < s.count; i++) {
                if (!range.contains(pos(g, s, i))) continue;
                for (uint32_t c = 1; c < std::min(n_pos_, 3u); c++)
                    if (pool.component(s.page, s.first + i, c) != pool.pos(s.page, s.first + i))
                        return fail(Code::kUnsupported,
                                    fmt::format("position {} of sequence {} is a vector and cannot "
                                                "be divided",
                                                pos(g, s, i), value(seq)));
            }
        }
    }
    return {};
}

// Cells that a shift leaves with another delta than 0, when the track would come to more different
// deltas than are allowed; else 0.
uint64_t Cells::cells_to_reencode(const Track& track, uint32_t group, Range range,
                                  Pos delta) const {
    if (kinds_[group].is_recurrent()) return 0;  // nothing in a state knows its position
    std::vector<Pos> deltas;
    uint64_t moved = 0;
    const auto add = [&](Pos d, uint32_t cells) {
        if (cells == 0) return;
        if (std::find(deltas.begin(), deltas.end(), d) == deltas.end()) deltas.push_back(d);
        if (d != 0) moved += cells;
    };
    // In order, only two spans can lie on an end of the range: no other's positions need a look.
    const PagePool& pool = pools_[group];
    const size_t begin = track.find(pool, range.begin), end = track.find(pool, range.end);
    for (size_t i = 0; i < track.spans().size(); i++) {
        const Span& s = track.spans()[i];
        uint32_t inside = begin < i && i < end ? s.count : 0;
        if (!track.ordered() || i == begin || i == end)
            inside =
                span_cells_before(pool, s, range.end) - span_cells_before(pool, s, range.begin);
        add(static_cast<Pos>(int64_t{s.delta} + (inside > 0 ? delta : 0)), inside);
        add(s.delta, s.count - inside);
    }
    return deltas.size() > max_deltas_ ? moved : 0;
}

// Positions in `range` divided, in one group. A state is not copied: it only stands elsewhere now,
// and older ones are lost, since several may come to stand at one position.
void Cells::divide(Track& track, uint32_t group, Range range, int32_t d) {
    if (!kinds_[group].is_recurrent()) {
        reencode(track, group, range, d);
        track.divide_forgotten(range, d);
        return;
    }
    const PagePool& pool = pools_[group];
    if (!track.empty() && range.contains(track.begin()))
        track.relabel(pools_[group], track.begin() / d, track.pos_max(pool) / d);
}

// Copies the cells in `range` whose position changes, or changed since they were encoded, into
// pages of their own; there is room for them.
void Cells::reencode(Track& track, uint32_t group, Range range, int32_t divisor) {
    PagePool& pool = pools_[group];
    Packer packer(pool, group, pending_);
    track.rewrite(pool, range, [&](const Span& s, std::vector<Span>& out) {
        if (divisor == 1 && s.delta == 0) {
            out.push_back(s);
            return;
        }
        packer.pack(s, divisor, out);
        pool.release(s.page, s.end());
    });
}

}  // namespace cellar
