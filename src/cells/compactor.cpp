#include "cells/compactor.h"

#include <algorithm>

namespace cellar {

uint32_t Compactor::run(uint32_t max_cells) {
    uint32_t moved = 0, filled = 0;
    std::vector<PageId> bin;  // pages that go together into one
    const auto flush = [&] {
        // Emptying one page into another gains nothing.
        if (bin.size() > 1 && pool_.n_free() > cells_.reserves_.total(group_)) {
            empty_into_one(bin);
            moved += filled;
        }
        bin.clear();
        filled = 0;
    };
    for (const PageId page : sparse_pages()) {
        const auto n = static_cast<uint32_t>(used_[value(page)].count());
        if (filled + n > pool_.page_size()) flush();
        if (moved + filled + n > max_cells) break;
        bin.push_back(page);
        filled += n;
    }
    flush();
    if (targets_.empty()) return 0;
    for (auto& entry : cells_.sequences_)
        follow(entry.second.tracks[group_]);
    for (const auto& entry : targets_) {
        const Target& target = entry.second;
        if (pool_.holders_at(target.page, 0) > 0) pool_.release(target.page, 0);
    }
    return moved;
}

void Compactor::find_used() {
    used_.resize(pool_.n_pages());
    growing_.resize(pool_.n_pages());
    for (const auto& entry : cells_.sequences_) {
        const auto spans = entry.second.tracks[group_].spans();
        for (const Span& s : spans)
            for (uint32_t i = s.first; i < s.end(); i++)
                used_[value(s.page)].set(i);
        if (spans.empty()) continue;
        const Span& tail = spans.back();
        if (tail.end() == pool_.fill(tail.page) && tail.end() < pool_.page_size())
            growing_[value(tail.page)] = true;
    }
}

// Keepers know pages by number, so theirs stay; so do pages that grow.
bool Compactor::may_empty(PageId page) const {
    return !growing_[value(page)] && pool_.keepers(page) == 0;
}

bool Compactor::unused_above(double fraction) const {
    uint64_t cells = 0, used = 0;
    for (uint32_t p = 0; p < pool_.n_pages(); p++) {
        if (used_[p].none() || !may_empty(PageId{p})) continue;
        cells += pool_.page_size();
        used += used_[p].count();
    }
    return static_cast<double>(cells - used) > fraction * static_cast<double>(cells);
}

// Pages worth emptying, in the order in which sequences walk them: cells that are read together
// then stand together.
std::vector<PageId> Compactor::sparse_pages() const {
    std::vector<PageId> pages;
    std::vector<bool> listed(pool_.n_pages());
    for (const SeqId id : cells_.sequences()) {
        for (const Span& s : cells_.spans(id, group_)) {
            const uint32_t p = value(s.page);
            if (listed[p] || !may_empty(s.page)) continue;
            listed[p] = true;
            if (used_[p].count() * 2 <= pool_.page_size()) pages.push_back(s.page);
        }
    }
    return pages;
}

void Compactor::empty_into_one(const std::vector<PageId>& pages) {
    const PageId to = *pool_.take();
    uint32_t end = 0;
    for (const PageId from : pages)
        move_cells(from, to, end);
}

// One move for each run of used cells. No span reaches over a gap, since gaps are what nobody sees.
void Compactor::move_cells(PageId from, PageId to, uint32_t& end) {
    Target& target = targets_[value(from)];
    target.page = to;
    target.offset.resize(pool_.page_size());
    const Used& used = used_[value(from)];
    for (uint32_t i = 0; i < pool_.page_size();) {
        if (!used[i]) {
            i++;
            continue;
        }
        const uint32_t first = i;
        for (; i < pool_.page_size() && used[i]; i++)
            target.offset[i] = static_cast<uint16_t>(end + i - first);
        pool_.copy_pos(from, first, to, end, i - first);
        pool_.hold(from, i);
        cells_.pending_.push_back({group_,
                                   {from, to, static_cast<uint16_t>(first),
                                    static_cast<uint16_t>(end), static_cast<uint16_t>(i - first)},
                                   false});
        end += i - first;
    }
}

void Compactor::follow(Track& track) {
    track.rewrite(pool_, {0, kMaxPos}, [&](const Span& s, std::vector<Span>& out) {
        const auto entry = targets_.find(value(s.page));
        if (entry == targets_.end()) {
            out.push_back(s);
            return;
        }
        const Target& target = entry->second;
        const Span moved{target.page, target.offset[s.first], s.count, s.delta};
        pool_.hold(moved.page, moved.end());
        pool_.release(s.page, s.end());
        if (!out.empty() && continues(pool_, out.back(), moved)) {
            pool_.release(moved.page, out.back().end());
            out.back().count = static_cast<uint16_t>(out.back().count + moved.count);
        } else {
            out.push_back(moved);
        }
    });
}

}  // namespace cellar
