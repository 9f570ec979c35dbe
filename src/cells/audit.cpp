#include "cells/audit.h"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace cellar {
namespace {

using Finding = std::optional<std::string>;

// Holders found by walking: for each page, how many see it up to which end.
class GroupAudit {
public:
    // Without `kept` keepers are taken on trust.
    GroupAudit(const Cells& cells, std::optional<std::span<const Hold>> kept, uint32_t group)
        : cells_(cells),
          kept_(kept),
          pool_(cells.pool(group)),
          group_(group),
          found_(pool_.n_pages()),
          keepers_(pool_.n_pages(), 0) {}

    Finding run() {
        for (const SeqId id : cells_.sequences())
            if (auto finding = walk(id)) return finding;
        for (const CellMove& move : cells_.pending())
            if (move.group == group_)
                found_[value(move.copy.from)][move.copy.from_first + uint32_t{move.copy.count}]++;
        count_keepers();
        uint32_t free = 0, cached = 0;
        for (uint32_t p = 0; p < pool_.n_pages(); p++) {
            if (auto finding = check_page(PageId{p})) return finding;
            const uint32_t holders = pool_.holders(PageId{p});
            free += holders == 0 ? 1 : 0;
            cached += holders > 0 && holders == keepers_[p] ? 1 : 0;
        }
        if (free != pool_.n_free() || cached != pool_.n_cached())
            return fmt::format("group {}: {} pages are free and {} cached, the pool says {} and {}",
                               group_, free, cached, pool_.n_free(), pool_.n_cached());
        if (cells_.reserved_pages(group_) > free)
            return fmt::format("group {}: {} pages are promised, {} are free", group_,
                               cells_.reserved_pages(group_), free);
        return {};
    }

private:
    Finding walk(SeqId id) {
        uint32_t cells = 0;
        Pos last_first = -1;
        for (const Span& s : cells_.spans(id, group_)) {
            if (s.count == 0 || s.end() > pool_.fill(s.page))
                return fmt::format("sequence {} sees cells {}..{} of page {}, filled to {}",
                                   value(id), s.first, s.end(), value(s.page), pool_.fill(s.page));
            Pos before = last_first;
            for (uint32_t i = 0; i < s.count; i++) {
                const Pos p = cells_.pos(group_, s, i);
                if (p < before || p < 0)
                    return fmt::format("sequence {} has position {} behind {}", value(id), p,
                                       before);
                before = p;
            }
            last_first = cells_.pos(group_, s, 0);
            cells += s.count;
            found_[value(s.page)][s.end()]++;
        }
        if (cells != cells_.n_cells(id, group_))
            return fmt::format("sequence {} has {} cells, but counts {}", value(id), cells,
                               cells_.n_cells(id, group_));
        return {};
    }

    void count_keepers() {
        for (uint32_t p = 0; !kept_ && p < pool_.n_pages(); p++)
            keepers_[p] = pool_.keepers(PageId{p});
        for (const Hold& hold : kept_.value_or(std::span<const Hold>())) {
            if (!hold.holds() || hold.group() != group_) continue;
            found_[value(hold.span().page)][hold.span().end()]++;
            keepers_[value(hold.span().page)]++;
        }
    }

    Finding check_page(PageId page) {
        const uint32_t trusted = kept_ ? 0 : keepers_[value(page)];
        uint32_t holders = trusted;
        for (const auto& [end, n] : found_[value(page)]) {
            holders += n;
            const uint32_t there = pool_.holders_at(page, end);
            if (there < n || there > n + trusted)
                return fmt::format("page {} has {} holders at end {}, {} were found", value(page),
                                   pool_.holders_at(page, end), end, n);
        }
        if (keepers_[value(page)] != pool_.keepers(page))
            return fmt::format("page {} counts {} keepers, {} were found", value(page),
                               pool_.keepers(page), keepers_[value(page)]);
        if (holders != pool_.holders(page))
            return fmt::format("page {} counts {} holders, {} were found", value(page),
                               pool_.holders(page), holders);
        if (holders > 0 && trusted == 0 && pool_.fill(page) != found_[value(page)].rbegin()->first)
            return fmt::format("page {} is filled to {}, but nobody sees beyond {}", value(page),
                               pool_.fill(page), found_[value(page)].rbegin()->first);
        if (pool_.next_cell(page) != pool_.fill(page) && holders > 0)
            return fmt::format("page {} is claimed to {}, and no plan is open", value(page),
                               pool_.next_cell(page));
        return {};
    }

    const Cells& cells_;
    const std::optional<std::span<const Hold>> kept_;
    const PagePool& pool_;
    const uint32_t group_;
    std::vector<std::map<uint32_t, uint32_t>> found_;  // by page: end -> holders
    std::vector<uint32_t> keepers_;                    // by page
};

}  // namespace

std::optional<std::string> audit(const Cells& cells, std::span<const Hold> kept) {
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        if (auto finding = GroupAudit(cells, kept, g).run()) return finding;
    return {};
}

std::optional<std::string> audit_trusting_keepers(const Cells& cells) {
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        if (auto finding = GroupAudit(cells, std::nullopt, g).run()) return finding;
    return {};
}

}  // namespace cellar
