#include "cells/departures.h"

#include <algorithm>

namespace cellar {

void Departures::add_sequence(SeqId seq) {
    std::vector<Kept>& kept = kept_.emplace_back();
    for (const Span& s : cells_.spans(seq, group_))
        kept.push_back({s, cells_.pos(group_, s, 0), cells_.pos(group_, s, s.count - 1u)});
}

uint32_t& Departures::holders(PageId page) {
    const uint32_t now = is_missing(page) ? 0 : pool_.holders(page);
    return holders_.try_emplace(value(page), now).first->second;
}

PageId Departures::open(std::optional<PageId> page) {
    const PageId opened = page.value_or(PageId{pool_.n_pages() + n_missing_});
    if (!page) n_missing_++;
    holders_[value(opened)] = 0;
    return opened;
}

void Departures::move_tail(uint32_t sequence, PageId page) {
    Span& tail = kept_[sequence].back().span;
    holders(page)++;
    tail.page = page;
    tail.first = 0;
}

void Departures::append(uint32_t sequence, const Span& grown, Pos first, Pos last) {
    ends_[value(grown.page)] = grown.end();
    std::vector<Kept>& kept = kept_[sequence];
    if (!kept.empty()) {
        Kept& tail = kept.back();
        const Span& s = tail.span;
        if (s.page == grown.page && s.end() == grown.first && s.delta == grown.delta) {
            tail.span.count = static_cast<uint16_t>(s.count + grown.count);
            tail.last = last;
            return;
        }
    }
    holders(grown.page)++;
    kept.push_back({grown, first, last});
}

void Departures::expire(Plan& plan, size_t ubatch, uint32_t sequence, const Retention& keep) {
    std::vector<Kept>& kept = kept_[sequence];
    std::erase_if(kept, [&](const Kept& k) {
        if (keep.keeps(k.first, k.last)) return false;
        let_go(plan, ubatch, k.span.page);
        return true;
    });
}

void Departures::let_go(Plan& plan, size_t ubatch, PageId page) {
    if (--holders(page) > 0) return;
    holders_.erase(value(page));
    free_.push_back(static_cast<uint32_t>(plan.departures_.size()));
    plan.departures_.push_back({ubatch, group_, page, false, false});
}

std::optional<uint32_t> Departures::take(Plan& plan, size_t ubatch) {
    if (free_.empty() || plan.departures_[free_.front()].until >= ubatch) return std::nullopt;
    const uint32_t departure = free_.front();
    free_.pop_front();
    plan.departures_[departure].wanted = true;
    holders_[value(plan.departures_[departure].page)] = 0;
    return departure;
}

}  // namespace cellar
