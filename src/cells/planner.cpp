#include "cells/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace cellar {

Result<Plan> Planner::run() {
    if (auto checked = check_splitting(); !checked) return pass(std::move(checked));
    if (auto read = read_items(); !read) return pass(std::move(read));
    if (auto marked = mark_checkpoints(); !marked) return pass(std::move(marked));
    auto ubatches = split(sets_, splitting());
    if (!ubatches) return pass(std::move(ubatches));

    taken_.assign(cells_.n_groups(), 0);
    missing_.assign(cells_.n_groups(), 0);
    departures_.resize(cells_.n_groups());
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        if (!cells_.lets_go(g)) continue;
        departures_[g] = std::make_unique<Departures>(cells_, g);
        for (const Grower& grower : growers_)
            departures_[g]->add_sequence(grower.id);
    }
    Plan plan;
    plan.cells_ = &cells_;
    plan.serial_ = cells_.open_plan_ = ++cells_.last_serial_;
    plan.ubatches_.reserve(ubatches->size());
    for (auto& items : *ubatches)
        plan_ubatch(plan, std::move(items));
    if (std::any_of(missing_.begin(), missing_.end(), [](uint32_t n) { return n > 0; })) {
        plan.cancel();
        if (cells_.grow_by_missing(missing_)) return Planner(cells_, batch_, options_).run();
        return no_room();
    }
    cells_.open_ubatch(plan, 0);
    return plan;
}

// A state takes up a sequence's tokens one after the other, so a graph wants equal runs.
SplitOptions Planner::splitting() const {
    SplitOptions options = options_;
    const bool any_order = options.splitting == Splitting::kSimple;
    if (any_order && cells_.has_recurrent()) options.splitting = Splitting::kEqual;
    return options;
}

Result<void> Planner::check_splitting() const {
    if (!options_.whole_sequences) return {};
    if (cells_.has_recurrent())
        return fail(Code::kUnsupported,
                    "sequences that stay whole in a ubatch, and a group that is recurrent");
    if (cells_.any_lets_go() && batch_.has_checkpoints())
        return fail(Code::kUnsupported,
                    "sequences that stay whole in a ubatch, and checkpoints inside of them");
    return {};
}

// Where windows and states do not stay by themselves, a ubatch ends with each checkpoint.
Result<void> Planner::mark_checkpoints() {
    if (!batch_.has_checkpoints() || !cells_.any_lets_go()) return {};
    if (cells_.max_checkpoints_ == 0)
        return fail(Code::kUnsupported,
                    "the batch asks for checkpoints, and this memory keeps none");
    sets_.last.resize(batch_.size());
    for (uint32_t item = 0; item < batch_.size(); item++)
        sets_.last[item] = batch_.is_checkpoint(item);
    return {};
}

// The numbers of the group that lacks most, once all have grown as far as they may.
tl::unexpected<Error> Planner::no_room() const {
    uint32_t worst = 0;
    int64_t most = INT64_MIN;
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        const int64_t lacking = int64_t{missing_[g]} - cells_.pools_[g].n_growable();
        if (lacking > most) worst = g;
        most = std::max(most, lacking);
    }
    return cells_.no_room(worst, uint64_t{taken_[worst]} + missing_[worst],
                          uint64_t{taken_[worst]} + cells_.pools_[worst].n_growable());
}

Result<void> Planner::read_items() {
    if (batch_.empty()) return fail(Code::kInvalidArgument, "the batch has no items");
    if (batch_.size() > INT32_MAX)
        return fail(Code::kInvalidArgument, fmt::format("a batch of {} items", batch_.size()));
    if (batch_.n_pos() != cells_.n_pos())
        return fail(Code::kInvalidArgument,
                    fmt::format("the batch has positions of {} components, the memory of {}",
                                batch_.n_pos(), cells_.n_pos()));
    positions_.reserve(batch_.size() * batch_.n_pos());
    sets_.begin.push_back(0);
    for (uint32_t i = 0; i < batch_.size(); i++)
        if (auto read = read_item(i); !read) return read;
    sets_.n_seqs = static_cast<uint32_t>(growers_.size());
    return check_maximum();
}

Result<void> Planner::check_maximum() const {
    for (const Grower& grower : growers_) {
        const Reserves::Account* account = cells_.reserves_.find(grower.id);
        if (account == nullptr) continue;
        for (uint32_t g = 0; g < cells_.n_groups(); g++) {
            const uint64_t held = cells_.counted_cells(grower.id, g),
                           maximum = account->limits.maximum;
            if (held + grower.n_items <= maximum) continue;
            const Room room{grower.n_items, maximum > held ? maximum - held : 0, 0};
            return tl::unexpected<Error>(Error{
                Code::kNoRoom,
                fmt::format("no room: sequence {} would grow by {} cells to {}, and may hold {}",
                            value(grower.id), grower.n_items, held + grower.n_items, maximum),
                room});
        }
    }
    return {};
}

Result<void> Planner::read_item(uint32_t item) {
    const auto seqs = batch_.seqs(item);
    if (seqs.empty())
        return fail(Code::kInvalidArgument, fmt::format("item {} belongs to no sequence", item));
    for (const SeqId id : seqs) {
        if (value(id) < 0)
            return fail(Code::kInvalidArgument,
                        fmt::format("item {} names sequence {}", item, value(id)));
        const uint32_t grower = grower_of(id);
        const auto set = std::span<const uint32_t>(sets_.seqs).subspan(sets_.begin.back());
        if (std::find(set.begin(), set.end(), grower) != set.end())
            return fail(Code::kInvalidArgument,
                        fmt::format("item {} names sequence {} twice", item, value(id)));
        sets_.seqs.push_back(grower);
    }
    sets_.begin.push_back(static_cast<uint32_t>(sets_.seqs.size()));
    if (seqs.size() > 1)
        if (auto coupled = check_coupled(item); !coupled) return coupled;
    if (auto read = read_position(item); !read) return read;
    for (const uint32_t g : sets_.of(item)) {
        growers_[g].newest_item = item;
        growers_[g].n_items++;
    }
    return {};
}

uint32_t Planner::grower_of(SeqId id) {
    const auto [entry, added] =
        grower_index_.try_emplace(value(id), static_cast<uint32_t>(growers_.size()));
    if (!added) return entry->second;
    Grower grower;
    grower.id = id;
    grower.last = grower.planned = cells_.seq_pos_max(id);
    const auto checkpoints = cells_.checkpoints(id);
    grower.checkpoints.assign(checkpoints.begin(), checkpoints.end());
    grower.tails.resize(cells_.n_groups());
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        const auto spans = cells_.spans(id, g);
        if (spans.empty()) continue;
        Tail& tail = grower.tails[g];
        tail.page = spans.back().page;
        tail.first = spans.back().first;
        tail.end = spans.back().end();
        tail.delta = spans.back().delta;
    }
    growers_.push_back(std::move(grower));
    return entry->second;
}

// Positions must grow within a sequence. With vectors they may stay: the cells of an image share
// their time, and rows and columns tell them apart.
Result<void> Planner::read_position(uint32_t item) {
    const uint32_t n_pos = batch_.n_pos();
    const bool next = batch_.pos(item) == kNextPos;
    Pos last = -1;
    for (const uint32_t g : sets_.of(item))
        last = std::max(last, growers_[g].last);
    if (next && last >= kMaxPos - 1)
        return fail(Code::kBadRange, fmt::format("item {} would follow position {}", item, last));
    const Pos pos = next ? last + 1 : batch_.pos(item);
    const bool grows = n_pos == 1 ? pos > last : pos >= last;
    if (pos < 0 || pos == kMaxPos || !grows)
        return fail(Code::kBadRange,
                    fmt::format("item {} has position {}, but sequence {} goes up to {}", item, pos,
                                value(batch_.seqs(item)[0]), last));
    for (uint32_t c = 0; c < n_pos; c++) {
        const Pos component = next ? pos : batch_.components(item)[c];
        if (component < 0)
            return fail(Code::kBadRange,
                        fmt::format("item {} has position component {}", item, component));
        positions_.push_back(component);
    }
    const bool follows = n_pos > 1 || last < 0 || pos == last + 1;
    if (!follows && cells_.has_recurrent())
        return fail(Code::kBadRange,
                    fmt::format("item {} has position {}, but the state of sequence {} goes on at "
                                "{}",
                                item, pos, value(batch_.seqs(item)[0]), last + 1));
    for (const uint32_t g : sets_.of(item)) {
        growers_[g].last = pos;
        if (growers_[g].n_items == 0) growers_[g].first = pos;
    }
    return {};
}

// Sequences may share an item only if they see the same cells before it. Two of them do when their
// newest items in this batch are the same one (that item was checked), or when neither has any and
// their spans are equal.
Result<void> Planner::check_coupled(uint32_t item) const {
    const auto set = sets_.of(item);
    const Grower& first = growers_[set[0]];
    for (const uint32_t s : set.subspan(1)) {
        const Grower& other = growers_[s];
        bool same = first.newest_item == other.newest_item;
        for (uint32_t g = 0; same && first.newest_item == UINT32_MAX && g < cells_.n_groups();
             g++) {
            const auto a = cells_.spans(first.id, g), b = cells_.spans(other.id, g);
            same = std::equal(a.begin(), a.end(), b.begin(), b.end());
        }
        if (!same)
            return fail(Code::kInvalidArgument,
                        fmt::format("item {} is shared by sequences {} and {}, which do not see "
                                    "the same cells before it",
                                    item, value(first.id), value(other.id)));
    }
    return {};
}

void Planner::plan_ubatch(Plan& plan, std::vector<uint32_t> items) {
    UbatchPlan& ubatch = plan.ubatches_.emplace_back();
    ubatch.items = std::move(items);
    const auto n_items = static_cast<uint32_t>(ubatch.items.size());
    ubatch.positions.reserve(n_items * batch_.n_pos());
    for (const uint32_t item : ubatch.items) {
        const auto at = positions_.begin() + static_cast<ptrdiff_t>(size_t{item} * batch_.n_pos());
        ubatch.positions.insert(ubatch.positions.end(), at, at + batch_.n_pos());
    }

    for (uint32_t i = 0; i < n_items; i++) {
        if (i > 0 && batch_.same_seqs(ubatch.items[i - 1], ubatch.items[i])) {
            ubatch.runs.back().count++;
            continue;
        }
        const auto seqs = batch_.seqs(ubatch.items[i]);
        ubatch.seq_ids.insert(ubatch.seq_ids.end(), seqs.begin(), seqs.end());
        ubatch.runs.push_back({seqs, i, 1});
    }
    size_t begin = 0;  // seq_ids grows no more, so the runs can point into it
    for (UbatchRun& run : ubatch.runs) {
        run.seqs = std::span<const SeqId>(ubatch.seq_ids).subspan(begin, run.seqs.size());
        begin += run.seqs.size();
    }

    ubatch.groups.resize(cells_.n_groups());
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        ubatch.groups[g].cells.reserve(n_items);
        for (const UbatchRun& run : ubatch.runs)
            claim_run(plan, ubatch, g, run);
    }
    plan_departures(plan, ubatch);
}

// What the ubatch's commit will add and let go.
void Planner::plan_departures(Plan& plan, UbatchPlan& ubatch) {
    if (!cells_.any_lets_go()) return;
    const size_t index = plan.ubatches_.size() - 1;
    for (const UbatchRun& run : ubatch.runs) {
        const uint32_t item = run.first + run.count - 1;
        const Pos pos = ubatch.positions[size_t{item} * batch_.n_pos()];
        const bool marks = sets_.ends(ubatch.items[item]);
        for (const uint32_t s : sets_.of(ubatch.items[item])) {
            Grower& grower = growers_[s];
            grower.planned = pos;
            if (!marks) continue;
            ubatch.checkpoints.push_back({grower.id, pos});
            keep_checkpoint(grower.checkpoints, {pos, cells_.last_checkpoint_ + index + 1},
                            cells_.max_checkpoints_);
        }
    }
    for (const UbatchRun& run : ubatch.runs)
        for (const uint32_t s : sets_.of(ubatch.items[run.first]))
            for (uint32_t g = 0; g < cells_.n_groups(); g++)
                if (departures_[g])
                    departures_[g]->expire(plan, index, s,
                                           Retention(cells_.kind(g), growers_[s].planned,
                                                     cells_.n_rollback(), growers_[s].checkpoints));
}

// A run's cells; of a recurrent group, cells for the states after its last items.
void Planner::claim_run(Plan& plan, UbatchPlan& ubatch, uint32_t group, const UbatchRun& run) {
    if (!cells_.kind(group).is_recurrent()) return claim_cells(plan, ubatch, group, run, 0);
    UbatchGroup& out = ubatch.groups[group];
    const Tail& tail = growers_[sets_.of(ubatch.items[run.first])[0]].tails[group];
    out.sources.push_back(tail.page == kNoPage ? cells_.zero_row(group) : value(tail.page));
    out.n_states = std::min(run.count, cells_.n_rollback() + 1);
    claim_cells(plan, ubatch, group, run, run.count - out.n_states);
}

// Claims cells page by page, from item `skipped` of the run on, and notes what its sequences will
// gain.
void Planner::claim_cells(Plan& plan, UbatchPlan& ubatch, uint32_t group, const UbatchRun& run,
                          uint32_t skipped) {
    PagePool& pool = cells_.pools_[group];
    UbatchGroup& out = ubatch.groups[group];
    const auto index = static_cast<uint32_t>(plan.ubatches_.size()) - 1;
    const auto set = sets_.of(ubatch.items[run.first]);
    Tail tail = growers_[set[0]].tails[group];
    for (uint32_t done = skipped; done < run.count;) {
        const bool fresh = !can_append(group, tail);
        const bool copied = fresh && open_page(plan, out, group, run.seqs[0], tail);
        const uint32_t n = std::min(run.count - done, pool.page_size() - tail.end);
        const uint32_t first_item = run.first + done;
        const Span grown{tail.page, static_cast<uint16_t>(tail.end), static_cast<uint16_t>(n), 0};
        for (uint32_t i = 0; i < n && !tail.imaginary; i++)
            out.cells.push_back(value(tail.page) * pool.page_size() + tail.end + i);
        if (!tail.imaginary) {
            if (tail.departure == Plan::kNone) pool.claim(tail.page, tail.end + n);
            const Pos begin = growers_[set[0]].first;
            for (const SeqId id : run.seqs) {
                const bool owns = fresh && id == run.seqs[0];
                plan.changes_.push_back({index, group, id, grown, copied, owns, first_item, begin,
                                         owns ? tail.departure : Plan::kNone});
            }
        }
        if (departures_[group]) {
            const auto pos = [&](uint32_t item) {
                return ubatch.positions[size_t{item} * batch_.n_pos()];
            };
            note(group, set, grown, copied, pos(first_item), pos(first_item + n - 1));
        }
        if (tail.delta != 0) {  // new cells are encoded where they stand: a span of their own
            tail.first = tail.end;
            tail.delta = 0;
        }
        tail.end += n;
        tail.written = index;
        done += n;
    }
    for (const uint32_t s : set)
        growers_[s].tails[group] = tail;
}

void Planner::note(uint32_t group, std::span<const uint32_t> set, const Span& grown, bool copied,
                   Pos first, Pos last) {
    for (const uint32_t s : set) {
        if (copied) departures_[group]->move_tail(s, grown.page);
        departures_[group]->append(s, grown, first, last);
    }
}

// Nobody but the plan writes to a page that it will receive, so its tails end where its cells do;
// unless sequences that shared an item went on apart.
bool Planner::can_append(uint32_t group, const Tail& tail) const {
    const PagePool& pool = cells_.pools_[group];
    if (tail.end == pool.page_size() || (tail.page == kNoPage && !tail.imaginary)) return false;
    if (tail.imaginary) return true;
    if (tail.departure != Plan::kNone) return departures_[group]->end(tail.page) == tail.end;
    return pool.next_cell(tail.page) == tail.end;
}

// A new page for the tail. When somebody else has cells behind the tail's end, its cells move over
// first, so that sequences stay dense; true then. Cells that this very ubatch writes cannot be
// copied before it runs: they stay, and the new page starts empty.
bool Planner::open_page(Plan& plan, UbatchGroup& out, uint32_t group, SeqId seq, Tail& tail) {
    const PagePool& pool = cells_.pools_[group];
    const auto ubatch = static_cast<uint32_t>(plan.ubatches_.size()) - 1;
    const bool copies = tail.page != kNoPage && !tail.imaginary && tail.end < pool.page_size() &&
                        tail.written != ubatch;
    const auto n = static_cast<uint16_t>(copies ? tail.end - tail.first : 0);
    const Tail old = tail;
    tail = Tail{kNoPage, 0, n, copies ? old.delta : 0, old.written};
    const std::optional<PageId> page = take_page(plan, group, seq, tail);
    tail.imaginary = !page;
    if (!page) return false;
    tail.page = *page;
    if (!copies) return false;
    out.copies.push_back({old.page, *page, static_cast<uint16_t>(old.first), 0, n});
    return true;
}

// A page that leaves a window before the newest ubatch, or one from the pool, or none.
std::optional<PageId> Planner::take_page(Plan& plan, uint32_t group, SeqId seq, Tail& tail) {
    PagePool& pool = cells_.pools_[group];
    Departures* departures = departures_[group].get();
    if (departures != nullptr) {
        if (const auto departure = departures->take(plan, plan.ubatches_.size() - 1)) {
            const PageId page = plan.departures_[*departure].page;
            tail.departure = *departure;
            tail.page = page;
            if (departures->is_missing(page)) return std::nullopt;
            return page;
        }
    }
    const bool may_take =
        cells_.reserves_.draw(seq, group) || pool.n_free() > cells_.reserves_.total(group);
    const std::optional<PageId> page = may_take ? pool.take() : std::nullopt;
    (page ? taken_ : missing_)[group]++;
    if (departures != nullptr) tail.page = departures->open(page);
    return page;
}

}  // namespace cellar
