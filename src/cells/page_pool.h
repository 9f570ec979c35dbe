#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "cells/span.h"

namespace cellar {

// The pages of one group: who holds them, how far they are filled, and the positions that their
// keys were encoded with. A page is free while nobody holds it.
//
// Every holder of a page sees it up to an end of its own. The fill of a page is the greatest of
// these ends: cells behind it are nobody's, so a holder whose end equals the fill may append in
// place, and one whose end lies lower has somebody else's cells behind its own and must not.
//
// Positions of a page are one base while they count up from cell to cell, which is nearly always,
// and a list of their own otherwise (gaps, re-encoded cells, vectors of M-RoPE).
class PagePool {
public:
    // Who holds. Pages that only keepers (prefix tree, saves) hold are cached, and could be
    // evicted.
    enum class Holder { kUser, kKeeper };

    // `page_size` is a power of two from 1 to 256, `n_pos` from 1 to 4.
    PagePool(uint32_t n_pages, uint32_t page_size, uint32_t n_pos);

    // More pages, behind all others. O(n_pages).
    void grow(uint32_t n_pages);

    // Lets the pool have so many pages; no fewer than it has.
    void set_max_pages(uint32_t max_pages) { max_pages_ = std::max(max_pages, n_pages()); }

    // -- Holding. All O(1), but for pages whose holders see different ends: O(different ends). ----

    // A free page, now held by the caller with end 0, or nothing.
    std::optional<PageId> take();

    void hold(PageId page, uint32_t end, Holder who = Holder::kUser);

    // The page is free when this was its last holder. Cuts the fill back to the greatest end left.
    void release(PageId page, uint32_t end, Holder who = Holder::kUser);

    // The page's last holder lets it go, and the caller holds it instead, with end 0.
    void recycle(PageId page);

    // A user's end moves from `from` to `to`; the fill follows when it is the greatest.
    void move_end(PageId page, uint32_t from, uint32_t to);

    // -- Claims: cells behind the fill that an open plan will write. ---------------------------

    void claim(PageId page, uint32_t end) {
        pages_[value(page)].claimed = static_cast<uint16_t>(end);
    }
    void unclaim(PageId page) { pages_[value(page)].claimed = 0; }

    // The first cell of the page that is neither filled nor claimed.
    uint32_t next_cell(PageId page) const {
        const Page& p = pages_[value(page)];
        return p.claimed > p.fill ? p.claimed : p.fill;
    }

    // -- Positions -----------------------------------------------------------------------------

    Pos pos(PageId page, uint32_t offset) const {
        const Pos* listed = lists_[value(page)].get();
        return listed ? listed[offset * n_pos_]
                      : pages_[value(page)].base + static_cast<Pos>(offset);
    }
    // Component c of a cell's position; component 0 is pos().
    Pos component(PageId page, uint32_t offset, uint32_t c) const {
        const Pos* listed = lists_[value(page)].get();
        return listed ? listed[offset * n_pos_ + c] : pos(page, offset);
    }
    // True while the page's positions are base + offset.
    bool counts_up(PageId page) const { return lists_[value(page)] == nullptr; }

    // Sets the position of a cell that nobody sees; cells are set in ascending order of offset.
    void set_pos(PageId page, uint32_t offset, std::span<const Pos> components);

    // Cells [from_first, +count) of one page lend their positions to [to_first, ...) of another.
    void copy_pos(PageId from, uint32_t from_first, PageId to, uint32_t to_first, uint32_t count);

    // -- Looking -------------------------------------------------------------------------------

    uint32_t page_size() const { return page_size_; }
    uint32_t n_pos() const { return n_pos_; }
    uint32_t n_pages() const { return static_cast<uint32_t>(pages_.size()); }
    uint32_t max_pages() const { return max_pages_; }  // that it may grow to
    uint32_t n_growable() const { return max_pages_ - n_pages(); }
    uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
    uint32_t n_cached() const { return n_cached_; }
    uint32_t n_live() const { return n_pages() - n_free() - n_cached_; }

    uint32_t fill(PageId page) const { return pages_[value(page)].fill; }
    uint32_t holders(PageId page) const { return pages_[value(page)].holders; }
    uint32_t keepers(PageId page) const { return pages_[value(page)].keepers; }
    bool is_free(PageId page) const { return holders(page) == 0; }

    // Counts up whenever cells that somebody saw were given back: whoever remembers a page by
    // number compares this too.
    uint32_t generation(PageId page) const { return pages_[value(page)].generation; }

    // How many holders see exactly up to `end`.
    uint32_t holders_at(PageId page, uint32_t end) const;

    // Bytes of this bookkeeping, heap blocks included.
    size_t bytes() const;

private:
    struct Page {
        uint32_t holders = 0;  // keepers included; 0 exactly when the page is free
        uint32_t keepers = 0;  // of them, those that only keep
        uint32_t generation = 0;
        Pos base = 0;          // position of cell 0 while positions count up
        uint16_t fill = 0;     // the greatest end of all holders
        uint16_t claimed = 0;  // end of what an open plan claims; 0: nothing
        bool uneven = false;   // holders see different ends; then `ends_` lists them
    };
    struct EndCount {
        uint16_t end;
        uint32_t holders;
    };
    using Ends = std::vector<EndCount>;  // ascending ends, no count 0; at least two entries

    void add_end(PageId page, uint32_t end);
    void drop_end(PageId page, uint32_t end);
    void count_cached(const Page& page, int change);
    void list_positions(PageId page, uint32_t filled);

    uint32_t page_size_;
    uint32_t n_pos_;
    uint32_t n_cached_ = 0;
    uint32_t max_pages_;  // at least n_pages()
    std::vector<Page> pages_;
    std::vector<uint32_t> free_;                 // the last is taken next
    std::vector<std::unique_ptr<Pos[]>> lists_;  // [page_size * n_pos] or null: counts up
    std::unordered_map<uint32_t, Ends> ends_;    // of uneven pages
};

}  // namespace cellar
