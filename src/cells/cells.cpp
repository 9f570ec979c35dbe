#include "cells/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "cells/planner.h"

namespace cellar {
namespace {

// Graphs number rows with 31 bits, and a pool's zero row is one more.
constexpr uint64_t kMaxCells = INT32_MAX;

// Each page costs tens of bytes of bookkeeping, at once. So many are the most cells at 32 a page.
constexpr uint64_t kMaxPages = uint64_t{1} << 26;

Result<void> check_kind(GroupKind kind, uint32_t group) {
    using Type = GroupKind::Type;
    const bool windowless =
        kind.type == Type::kFull || kind.type == Type::kWhole || kind.type == Type::kRecurrent;
    if (windowless == !kind.slides()) return {};
    return fail(Code::kInvalidArgument,
                fmt::format("group {} has a window of {} positions, which its kind {}", group,
                            kind.window, windowless ? "does not have" : "cannot be without"));
}

}  // namespace

Result<uint32_t> whole_pages(uint32_t n_cells, uint32_t page_size) {
    if (!std::has_single_bit(page_size) || page_size > 256)
        return fail(
            Code::kInvalidArgument,
            fmt::format("a page of {} cells: it must be a power of two from 1 to 256", page_size));
    const uint64_t cells = (uint64_t{n_cells} + page_size - 1) / page_size * page_size;
    if (cells == 0 || cells >= kMaxCells)
        return fail(Code::kInvalidArgument,
                    fmt::format("a memory of {} cells: it must have from 1 to {}", n_cells,
                                kMaxCells - 256));
    if (cells / page_size > kMaxPages)
        return fail(Code::kInvalidArgument,
                    fmt::format("a memory of {} pages of {} cells: it must have at most {} pages",
                                cells / page_size, page_size, kMaxPages));
    return static_cast<uint32_t>(cells);
}

Result<Cells> Cells::create(const CellsConfig& config) {
    if (config.n_pos < 1 || config.n_pos > 4)
        return fail(
            Code::kInvalidArgument,
            fmt::format("positions of {} components: from 1 to 4 are possible", config.n_pos));
    if (config.group_cells.empty())
        return fail(Code::kInvalidArgument, "a memory needs at least one group of layers");
    if (config.kinds.size() > config.group_cells.size())
        return fail(Code::kInvalidArgument,
                    fmt::format("{} kinds for {} groups of layers", config.kinds.size(),
                                config.group_cells.size()));
    Cells cells(static_cast<uint32_t>(config.group_cells.size()));
    cells.kinds_ = config.kinds;
    cells.kinds_.resize(config.group_cells.size());
    cells.keeps_windows_ = config.keeps_windows;
    cells.page_size_ = config.page_size;
    cells.n_pos_ = config.n_pos;
    cells.grow_pages_ = static_cast<uint32_t>((uint64_t{config.grow_step} + config.page_size - 1) /
                                              std::max(1u, config.page_size));
    cells.max_deltas_ = std::max(1u, config.max_deltas);
    cells.n_rollback_ = config.n_rollback;
    cells.max_checkpoints_ = config.max_checkpoints;
    cells.max_checkpoints_all_ = config.max_checkpoints_all;
    cells.max_ubatch_ = config.max_ubatch;
    for (uint32_t g = 0; g < config.group_cells.size(); g++) {
        if (auto checked = check_kind(cells.kinds_[g], g); !checked)
            return pass(std::move(checked));
        const uint32_t page_size = cells.kinds_[g].is_recurrent() ? 1 : config.page_size;
        auto whole = whole_pages(config.group_cells[g], page_size);
        if (!whole) return pass(std::move(whole));
        const uint32_t n_pages = *whole / page_size;
        const bool grows = cells.grow_pages_ > 0 && cells.grow_pages_ < n_pages;
        cells.pools_.emplace_back(grows ? cells.grow_pages_ : n_pages, page_size, config.n_pos);
        cells.pools_.back().set_max_pages(n_pages);
        cells.lets_go_ = cells.lets_go_ || cells.lets_go(g);
    }
    return cells;
}

Pos Cells::seq_pos_min(SeqId seq) const {
    const Sequence* sequence = find(seq);
    if (sequence == nullptr) return -1;
    Pos min = -1;
    for (uint32_t g = 0; g < n_groups(); g++) {
        const Track& track = sequence->tracks[g];
        min = std::max(min, track.pos_min(pools_[g]));
        // What stands before is kept for a checkpoint only.
        const auto forgotten = track.forgotten().list();
        if (!forgotten.empty()) min = std::max(min, forgotten.back().end);
    }
    return min;
}

Pos Cells::seq_pos_max(SeqId seq) const {
    const Sequence* sequence = find(seq);
    if (sequence == nullptr) return -1;
    Pos max = -1;
    for (uint32_t g = 0; g < n_groups(); g++)
        max = std::max(max, sequence->tracks[g].pos_max(pools_[g]));
    return max;
}

Result<Plan> Cells::prepare(const Batch& batch, const SplitOptions& options) {
    if (busy()) return fail(Code::kBusy, "a plan is open");
    if (auto ok = check_moves_done(); !ok) return pass(std::move(ok));
    return Planner(*this, batch, options).run();
}

Result<void> Cells::commit(Plan& plan, size_t i) {
    if (plan.cells_ != this || plan.serial_ != open_plan_)
        return fail(Code::kStale, plan.cells_ == nullptr ? "the plan is finished or cancelled"
                                                         : "the plan belongs to another memory");
    if (i != plan.committed_)
        return fail(Code::kBadRange, fmt::format("ubatch {} cannot be committed: {} of {} is next",
                                                 i, plan.committed_, plan.size()));
    for (; plan.next_change_ < plan.changes_.size(); plan.next_change_++) {
        const Plan::Change& change = plan.changes_[plan.next_change_];
        if (change.ubatch != i) break;
        PagePool& pool = pools_[change.group];
        Track& track = find_or_add(change.seq).tracks[change.group];
        if (track.empty()) track.set_begin(change.begin);
        if (change.moves_tail) track.move_tail(pool, change.grown.page, change.fresh);
        track.append(pool, change.grown, change.fresh && !change.moves_tail);
    }
    const UbatchPlan& ubatch = plan.ubatch(i);
    for (const UbatchPlan::Mark& mark : ubatch.checkpoints)
        add_checkpoint(mark.seq, mark.pos, &plan);
    if (lets_go_)
        for (const SeqId id : ubatch.seq_ids)
            expire(id, &plan);
    plan.committed_++;
    if (plan.committed_ == plan.size()) {
        close(plan);
    } else {
        open_ubatch(plan, plan.committed_);
    }
    return {};
}

// Makes the cells of ubatch `i` ready to be written: those that left before it are free by now, and
// new cells are given their positions, which nobody's cells stand in the way of any more.
void Cells::open_ubatch(Plan& plan, size_t i) {
    const UbatchPlan& ubatch = plan.ubatch(i);
    for (uint32_t g = 0; g < n_groups(); g++)
        for (const CellCopy& c : ubatch.groups[g].copies)
            pools_[g].copy_pos(c.from, c.from_first, c.to, c.to_first, c.count);
    for (size_t k = plan.next_change_; k < plan.changes_.size(); k++) {
        const Plan::Change& change = plan.changes_[k];
        if (change.ubatch != i) break;
        // Sequences that share items change one after the other, by the same cells.
        const Plan::Change* before = k > plan.next_change_ ? &plan.changes_[k - 1] : nullptr;
        if (before && before->group == change.group && before->grown == change.grown) continue;
        for (uint32_t j = 0; j < change.grown.count; j++)
            pools_[change.group].set_pos(
                change.grown.page, change.grown.first + j,
                std::span<const Pos>(ubatch.positions)
                    .subspan(size_t{change.first_item + j} * n_pos_, n_pos_));
    }
}

std::span<const Span> Cells::spans(SeqId seq, uint32_t group) const {
    const Sequence* sequence = find(seq);
    if (sequence == nullptr) return {};
    return sequence->tracks[group].spans();
}

uint32_t Cells::n_cells(SeqId seq, uint32_t group) const {
    const Sequence* sequence = find(seq);
    return sequence == nullptr ? 0 : sequence->tracks[group].n_cells();
}

std::span<const Checkpoint> Cells::checkpoints(SeqId seq) const {
    const Sequence* sequence = find(seq);
    if (sequence == nullptr) return {};
    return sequence->checkpoints;
}

std::span<const Range> Cells::forgotten(SeqId seq, uint32_t group) const {
    const Sequence* sequence = find(seq);
    if (sequence == nullptr) return {};
    return sequence->tracks[group].forgotten().list();
}

Pos Cells::taken_up_from(SeqId seq, uint32_t group) const {
    const Sequence* sequence = find(seq);
    return sequence == nullptr ? 0 : sequence->tracks[group].begin();
}

bool Cells::has_recurrent() const {
    return std::any_of(kinds_.begin(), kinds_.end(),
                       [](GroupKind kind) { return kind.is_recurrent(); });
}

size_t Cells::bytes() const {
    size_t total = sizeof(*this) + sequences_.bucket_count() * sizeof(void*);
    for (const PagePool& pool : pools_)
        total += sizeof(pool) + pool.bytes();
    for (const auto& entry : sequences_) {
        total += sizeof(entry) + 2 * sizeof(void*);
        total += entry.second.checkpoints.capacity() * sizeof(Checkpoint);
        for (const Track& track : entry.second.tracks)
            total += track.bytes();
    }
    return total + pending_.capacity() * sizeof(CellMove);
}

std::vector<SeqId> Cells::sequences() const {
    std::vector<SeqId> ids;
    ids.reserve(sequences_.size());
    for (const auto& entry : sequences_)
        ids.push_back(SeqId{entry.first});
    std::sort(ids.begin(), ids.end());
    return ids;
}

Sequence* Cells::find(SeqId seq) {
    const auto entry = sequences_.find(value(seq));
    return entry == sequences_.end() ? nullptr : &entry->second;
}

const Sequence* Cells::find(SeqId seq) const {
    const auto entry = sequences_.find(value(seq));
    return entry == sequences_.end() ? nullptr : &entry->second;
}

Sequence& Cells::find_or_add(SeqId seq) {
    Sequence& sequence = sequences_[value(seq)];
    if (sequence.tracks.empty()) sequence.tracks.resize(n_groups());
    return sequence;
}

// Returns what the plan claimed and did not commit.
void Cells::cancel(Plan& plan) {
    for (size_t i = plan.next_change_; i < plan.changes_.size(); i++) {
        const Plan::Change& change = plan.changes_[i];
        // A page that is still in a window when the plan ends stays there.
        const bool awaited =
            change.departure != Plan::kNone && !plan.departures_[change.departure].held;
        if (change.fresh && !awaited) pools_[change.group].release(change.grown.page, 0);
    }
    close(plan);
}

void Cells::close(Plan& plan) {
    for (const Plan::Change& change : plan.changes_)
        pools_[change.group].unclaim(change.grown.page);
    open_plan_ = 0;
    plan.cells_ = nullptr;
    settle();
}

}  // namespace cellar
