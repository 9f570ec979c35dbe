// The room of Cells: limits, growth, compaction, keepers.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cells/audit.h"
#include "cells/cells.h"
#include "cells/compactor.h"

namespace cellar {

Result<void> Cells::set_limits(SeqId seq, const SeqLimits& limits) {
    if (auto ok = check_verb(seq, false); !ok) return ok;
    if (limits.guaranteed > limits.maximum)
        return fail(Code::kInvalidArgument,
                    fmt::format("sequence {} cannot be promised {} cells and allowed {}",
                                value(seq), limits.guaranteed, limits.maximum));
    const Reserves::Account* before = reserves_.find(seq);
    const SeqLimits old = before != nullptr ? before->limits : SeqLimits{};
    reserves_.open(seq).limits = limits;
    for (uint32_t g = 0; g < n_groups(); g++) {
        const uint32_t promised = promised_pages(seq, g);
        const uint64_t free = free_pages(g, seq);
        if (promised <= free) continue;
        reserves_.open(seq).limits = old;
        if (before == nullptr) reserves_.close(seq);
        return no_room(g, promised, free);
    }
    settle();
    return {};
}

Result<void> Cells::grow(uint32_t group, uint32_t n_cells) {
    if (busy()) return fail(Code::kBusy, "a plan is open");
    const uint64_t n_pages = group < n_groups() ? pages(group, n_cells) : 0;
    if (group >= n_groups() || n_pages < pools_[group].n_pages() ||
        n_pages * pools_[group].page_size() >= INT32_MAX)
        return fail(Code::kBadRange,
                    fmt::format("group {} cannot grow to {} cells", group, n_cells));
    pools_[group].grow(static_cast<uint32_t>(n_pages));
    settle();
    return {};
}

Result<uint32_t> Cells::defrag(uint32_t max_cells) {
    if (busy()) return fail(Code::kBusy, "a plan is open");
    uint32_t moved = 0;
    for (uint32_t g = 0; g < n_groups(); g++)
        if (!kinds_[g].is_recurrent()) moved += Compactor(*this, g).run(max_cells);
    settle();
    return moved;
}

Result<uint32_t> Cells::defrag_if_above(double threshold, uint32_t max_cells) {
    if (busy()) return fail(Code::kBusy, "a plan is open");
    if (!(threshold >= 0.0 && threshold <= 1.0))
        return fail(Code::kInvalidArgument,
                    fmt::format("a threshold of {}: it must lie from 0 to 1", threshold));
    uint32_t moved = 0;
    for (uint32_t g = 0; g < n_groups(); g++) {
        if (kinds_[g].is_recurrent()) continue;
        Compactor compactor(*this, g);
        if (compactor.unused_above(threshold)) moved += compactor.run(max_cells);
    }
    settle();
    return moved;
}

Result<Hold> Cells::keep(uint32_t group, const Span& span) {
    if (busy() && lets_go_) return fail(Code::kBusy, "a plan is open");
    const bool known = group < n_groups() && value(span.page) < pools_[group].n_pages();
    if (!known || span.count == 0 || pools_[group].is_free(span.page) ||
        span.end() > pools_[group].fill(span.page))
        return fail(Code::kBadRange, fmt::format("nobody sees cells [{}, {}) of page {}",
                                                 span.first, span.end(), value(span.page)));
    return Hold(pools_[group], group, span);
}

// Cells that count towards a sequence's limits: those that it holds, and of a group that lets go
// of them its tokens, by their positions.
uint64_t Cells::counted_cells(SeqId seq, uint32_t group) const {
    if (lets_go(group)) return static_cast<uint64_t>(int64_t{seq_pos_max(seq)} + 1);
    return n_cells(seq, group);
}

uint64_t Cells::pages_held(SeqId seq, uint32_t group) const {
    uint64_t n = 0;
    PageId last = kNoPage;
    for (const Span& s : spans(seq, group)) {
        n += s.page == last ? 0 : 1;
        last = s.page;
    }
    return n;
}

// Pages that a sequence needs at most to grow from what it holds to its guarantee. Its last page
// may turn out to be shared and be copied, so its cells count once more. Where cells leave again,
// no more than what one step needs beside what its checkpoints may come to: a window and a ubatch,
// or a step's states beside the old ones.
uint32_t Cells::promised_pages(SeqId seq, uint32_t group) const {
    const Reserves::Account* account = reserves_.find(seq);
    if (account == nullptr) return 0;
    const uint64_t counted = counted_cells(seq, group), guaranteed = account->limits.guaranteed;
    if (counted >= guaranteed) return 0;
    const uint64_t copied = counted > 0 ? page_size_ - 1 : 0, lacking = guaranteed - counted;
    if (!lets_go(group)) return static_cast<uint32_t>(pages(group, lacking + copied));
    const uint64_t states = n_rollback_ + uint64_t{1}, kept = max_checkpoints_;
    uint64_t most = 2 * states + kept, held = n_cells(seq, group);
    if (!kinds_[group].is_recurrent()) {
        const uint64_t window = kinds_[group].window;
        const uint64_t cells = std::min(guaranteed, window + n_rollback_ + max_ubatch_);
        most = pages(group, cells) + 2 + kept * (pages(group, window) + 1);
        held = pages_held(seq, group);
    }
    return static_cast<uint32_t>(most > held ? most - held : 0);
}

// The end of whatever changed who holds what. Debug builds audit then; walking a large pool after
// every verb would make them useless.
void Cells::settle() {
    if (busy()) return;  // a plan's draws and claims are settled when it closes
    settle_reserves();
#ifndef NDEBUG
    constexpr uint64_t kMostAudited = 1 << 14;
    uint64_t n_pages = 0;
    for (const PagePool& pool : pools_)
        n_pages += pool.n_pages();
    if (n_pages > kMostAudited) return;
    if (const auto finding = audit_trusting_keepers(*this)) {
        fmt::print(stderr, "audit of the cells: {}\n", *finding);
        std::abort();
    }
#endif
}

// Lets every bank follow what its sequence still lacks: lowers at once, raises as far as there are
// or can be free pages that nobody else was promised.
void Cells::settle_reserves() {
    for (auto& entry : reserves_.accounts()) {
        Reserves::Account& account = entry.second;
        for (uint32_t g = 0; g < n_groups(); g++) {
            const uint32_t promised = promised_pages(SeqId{entry.first}, g);
            const uint32_t others = reserves_.total(g) - account.banked[g];
            grow_until_free(g, uint64_t{others} + promised);
            const uint32_t free = pools_[g].n_free();
            reserves_.set_banked(account, g, std::min(promised, free > others ? free - others : 0));
        }
    }
}

// What `seq` may take: pages that are free, or will be once the pool has grown, and were not
// promised to others.
uint64_t Cells::free_pages(uint32_t group, SeqId seq) const {
    const uint64_t others = reserves_.total(group) - reserves_.banked(seq, group);
    const uint64_t free = uint64_t{pools_[group].n_free()} + pools_[group].n_growable();
    return free > others ? free - others : 0;
}

// Sees to it that the pages that a verb needs, by group, are free.
Result<void> Cells::make_room(std::span<const uint64_t> needed) {
    for (uint32_t g = 0; g < n_groups(); g++) {
        const uint64_t free = free_pages(g, kEverySeq);
        if (needed[g] > free) return no_room(g, needed[g], free);
    }
    for (uint32_t g = 0; g < n_groups(); g++)
        grow_until_free(g, reserves_.total(g) + needed[g]);
    return {};
}

// Grows in whole steps, as far as the pool may.
void Cells::grow_until_free(uint32_t group, uint64_t n_pages) {
    PagePool& pool = pools_[group];
    if (pool.n_free() >= n_pages || pool.n_growable() == 0) return;
    const uint64_t step = std::max(1u, grow_pages_), lacking = n_pages - pool.n_free();
    const uint64_t grown = pool.n_pages() + (lacking + step - 1) / step * step;
    pool.grow(static_cast<uint32_t>(std::min<uint64_t>(grown, pool.max_pages())));
}

// More free pages in each group, or nothing when one of them cannot have so many.
bool Cells::grow_by_missing(std::span<const uint32_t> missing) {
    for (uint32_t g = 0; g < n_groups(); g++)
        if (missing[g] > pools_[g].n_growable()) return false;
    for (uint32_t g = 0; g < n_groups(); g++)
        if (missing[g] > 0) grow_until_free(g, uint64_t{pools_[g].n_free()} + missing[g]);
    return true;
}

tl::unexpected<Error> Cells::no_room(uint32_t group, uint64_t pages, uint64_t free) const {
    const uint64_t size = pools_[group].page_size();
    const Room room{pages * size, free * size, pools_[group].n_cached() * size};
    Error error{
        Code::kNoRoom,
        fmt::format("no room: {} more {} are needed, {} are free and {} cached", room.needed,
                    kinds_[group].is_recurrent() ? "states" : "cells", room.free, room.cached),
        room};
    if (n_groups() > 1) error.message += fmt::format(" in group {}", group);
    return tl::unexpected<Error>(std::move(error));
}

}  // namespace cellar
