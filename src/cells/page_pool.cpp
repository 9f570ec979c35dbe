#include "cells/page_pool.h"

#include <algorithm>
#include <cassert>

namespace cellar {

PagePool::PagePool(uint32_t n_pages, uint32_t page_size, uint32_t n_pos)
    : page_size_(page_size), n_pos_(n_pos), max_pages_(n_pages), pages_(n_pages), lists_(n_pages) {
    free_.reserve(n_pages);
    // Low pages first: a pool that is address space then commits memory from its start.
    for (uint32_t i = n_pages; i-- > 0;)
        free_.push_back(i);
}

void PagePool::grow(uint32_t n_pages) {
    std::vector<uint32_t> more;
    for (uint32_t i = n_pages; i-- > this->n_pages();)
        more.push_back(i);
    free_.insert(free_.begin(), more.begin(), more.end());
    pages_.resize(n_pages);
    lists_.resize(n_pages);
    max_pages_ = std::max(max_pages_, n_pages);
}

std::optional<PageId> PagePool::take() {
    if (free_.empty()) return std::nullopt;
    const PageId id{free_.back()};
    free_.pop_back();
    Page& page = pages_[value(id)];
    assert(page.holders == 0 && !page.uneven);
    page.holders = 1;
    page.fill = page.claimed = 0;
    lists_[value(id)].reset();
    return id;
}

void PagePool::hold(PageId id, uint32_t end, Holder who) {
    Page& page = pages_[value(id)];
    assert(page.holders > 0 && end <= page_size_);
    count_cached(page, -1);
    if (page.uneven || end != page.fill) add_end(id, end);
    page.holders++;
    if (who == Holder::kKeeper) page.keepers++;
    count_cached(page, +1);
}

void PagePool::release(PageId id, uint32_t end, Holder who) {
    Page& page = pages_[value(id)];
    assert(page.holders > 0);
    count_cached(page, -1);
    page.holders--;
    if (who == Holder::kKeeper) page.keepers--;
    if (page.uneven) drop_end(id, end);
    if (page.holders == 0) {
        page.generation++;
        free_.push_back(value(id));
    }
    count_cached(page, +1);
}

void PagePool::recycle(PageId id) {
    Page& page = pages_[value(id)];
    assert(page.holders == 1 && page.keepers == 0 && !page.uneven);
    page.generation++;
    page.fill = page.claimed = 0;
    lists_[value(id)].reset();
}

void PagePool::move_end(PageId id, uint32_t from, uint32_t to) {
    Page& page = pages_[value(id)];
    assert(page.holders > 0 && to <= page_size_);
    if (page.holders == 1 &&
        to >= from) {  // the one that appends to its own page: every decode step
        page.fill = static_cast<uint16_t>(to);
        return;
    }
    hold(id, to);
    release(id, from);
}

void PagePool::set_pos(PageId id, uint32_t offset, std::span<const Pos> components) {
    Page& page = pages_[value(id)];
    assert(components.size() == n_pos_ && offset < page_size_);
    auto& list = lists_[value(id)];
    if (!list) {
        const bool scalar = n_pos_ == 1;
        if (scalar && offset == 0) page.base = components[0];
        if (scalar && components[0] - page.base == static_cast<Pos>(offset)) return;
        list_positions(id, offset);
    }
    std::copy(components.begin(), components.end(), list.get() + offset * n_pos_);
}

void PagePool::copy_pos(PageId from, uint32_t from_first, PageId to, uint32_t to_first,
                        uint32_t count) {
    Pos components[4];
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < n_pos_; c++)
            components[c] = component(from, from_first + i, c);
        set_pos(to, to_first + i, std::span<const Pos>(components, n_pos_));
    }
}

uint32_t PagePool::holders_at(PageId id, uint32_t end) const {
    const Page& page = pages_[value(id)];
    if (!page.uneven) return end == page.fill ? page.holders : 0;
    for (const EndCount& e : ends_.at(value(id)))
        if (e.end == end) return e.holders;
    return 0;
}

size_t PagePool::bytes() const {
    size_t total = pages_.capacity() * sizeof(Page) + free_.capacity() * sizeof(uint32_t) +
                   lists_.capacity() * sizeof(lists_[0]);
    for (const auto& list : lists_)
        if (list) total += page_size_ * n_pos_ * sizeof(Pos);
    for (const auto& [id, ends] : ends_)
        total += 4 * sizeof(void*) + sizeof(ends) + ends.capacity() * sizeof(EndCount);
    return total;
}

// Enters one more end; the caller counts the holder afterwards.
void PagePool::add_end(PageId id, uint32_t end) {
    Page& page = pages_[value(id)];
    Ends& ends = ends_[value(id)];
    if (!page.uneven) {
        ends.push_back({page.fill, page.holders});
        page.uneven = true;
    }
    const auto at = std::lower_bound(ends.begin(), ends.end(), end,
                                     [](const EndCount& e, uint32_t x) { return e.end < x; });
    if (at != ends.end() && at->end == end) {
        at->holders++;
    } else {
        ends.insert(at, {static_cast<uint16_t>(end), 1});
    }
    page.fill = ends.back().end;
}

// Strikes one end out; when a single end is left the page is even again.
void PagePool::drop_end(PageId id, uint32_t end) {
    Page& page = pages_[value(id)];
    const auto entry = ends_.find(value(id));
    Ends& ends = entry->second;
    const auto at = std::lower_bound(ends.begin(), ends.end(), end,
                                     [](const EndCount& e, uint32_t x) { return e.end < x; });
    assert(at != ends.end() && at->end == end);
    if (--at->holders == 0) ends.erase(at);
    if (ends.back().end < page.fill) page.generation++;
    page.fill = ends.back().end;
    if (ends.size() == 1) {
        page.uneven = false;
        ends_.erase(entry);
    }
}

void PagePool::count_cached(const Page& page, int change) {
    if (page.keepers > 0 && page.keepers == page.holders)
        n_cached_ = static_cast<uint32_t>(static_cast<int>(n_cached_) + change);
}

// From a base to a list, with the first `filled` cells' positions written out.
void PagePool::list_positions(PageId id, uint32_t filled) {
    auto list = std::make_unique<Pos[]>(page_size_ * n_pos_);
    for (uint32_t i = 0; i < filled; i++)
        for (uint32_t c = 0; c < n_pos_; c++)
            list[i * n_pos_ + c] = pages_[value(id)].base + static_cast<Pos>(i);
    lists_[value(id)] = std::move(list);
}

}  // namespace cellar
