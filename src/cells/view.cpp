#include "cells/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace cellar {
namespace {

// Marks the cells that sequences see, one byte a cell of the pool.
std::vector<uint8_t> seen_cells(const Cells& cells, uint32_t group, GroupView& view) {
    const PagePool& pool = cells.pool(group);
    std::vector<uint8_t> seen(size_t{pool.n_pages()} * pool.page_size(), 0);
    for (const SeqId id : cells.sequences()) {
        const auto spans = cells.spans(id, group);
        if (spans.empty()) continue;
        SequenceView sequence;
        sequence.seq = id;
        sequence.cells = cells.n_cells(id, group);
        sequence.pos_min = cells.seq_pos_min(id);
        sequence.pos_max = cells.seq_pos_max(id);
        sequence.spans.assign(spans.begin(), spans.end());
        view.greatest_pos = std::max(view.greatest_pos, sequence.pos_max);
        view.held_cells += sequence.cells;
        for (const Span& s : spans) {
            const auto first =
                seen.begin() +
                static_cast<ptrdiff_t>(size_t{value(s.page)} * pool.page_size() + s.first);
            std::fill(first, first + s.count, uint8_t{1});
        }
        view.sequences.push_back(std::move(sequence));
    }
    return seen;
}

PageView view_page(const PagePool& pool, PageId page, const uint8_t* seen) {
    PageView view;
    view.page = page;
    view.fill = pool.fill(page);
    view.used = static_cast<uint32_t>(std::count(seen, seen + pool.page_size(), 1));
    view.holders = pool.holders(page);
    view.keepers = pool.keepers(page);
    if (view.fill > 0) {
        view.first_pos = pool.pos(page, 0);
        view.last_pos = pool.pos(page, view.fill - 1);
    }
    return view;
}

GroupView view_group(const Cells& cells, uint32_t group) {
    const PagePool& pool = cells.pool(group);
    GroupView view;
    view.page_size = pool.page_size();
    view.pages = pool.n_pages();
    view.max_pages = pool.max_pages();
    view.free_pages = pool.n_free();
    view.cached_pages = pool.n_cached();
    view.reserved_pages = cells.reserved_pages(group);
    const std::vector<uint8_t> seen = seen_cells(cells, group, view);
    uint32_t run = 0;
    for (uint32_t p = 0; p < pool.n_pages(); p++) {
        run = pool.is_free(PageId{p}) ? run + 1 : 0;
        view.largest_free_run = std::max(view.largest_free_run, run);
        if (run > 0) continue;
        view.live.push_back(view_page(pool, PageId{p}, &seen[size_t{p} * pool.page_size()]));
        view.used_cells += view.live.back().used;
    }
    return view;
}

char letter(const PageView& page) {
    if (page.holders == page.keepers) return 'c';
    return page.holders > 9 ? '+' : static_cast<char>('0' + page.holders);
}

void add_map(const GroupView& group, std::string& text) {
    constexpr uint32_t kRow = 64;
    std::string map(group.pages, '.');
    for (const PageView& page : group.live)
        map[value(page.page)] = letter(page);
    for (uint32_t p = 0; p < group.pages; p += kRow)
        fmt::format_to(std::back_inserter(text), "  {:>8} {}\n", p, map.substr(p, kRow));
}

void add_positions(const GroupView& group, std::string& text) {
    const auto out = std::back_inserter(text);
    for (const PageView& page : group.live)
        fmt::format_to(out,
                       "  page {}: {} of {} cells filled, {} seen, positions {}..{}, {} holders\n",
                       value(page.page), page.fill, group.page_size, page.used, page.first_pos,
                       page.last_pos, page.holders);
    for (const SequenceView& sequence : group.sequences) {
        fmt::format_to(out, "  sequence {}:", value(sequence.seq));
        for (const Span& s : sequence.spans)
            fmt::format_to(out, " {}[{},{}){:+}", value(s.page), s.first, s.end(), s.delta);
        text += '\n';
    }
}

}  // namespace

CellsView make_view(const Cells& cells) {
    CellsView view;
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        view.groups.push_back(view_group(cells, g));
    return view;
}

std::string describe(const CellsView& view, int level) {
    std::string text;
    for (size_t g = 0; g < view.groups.size(); g++) {
        const GroupView& group = view.groups[g];
        fmt::format_to(std::back_inserter(text),
                       "group {}: {} of {} pages live, {} cached, {} free (largest run {}, {} "
                       "reserved); {} cells used, {} held by {} sequences, positions up to {}\n",
                       g, group.pages - group.free_pages - group.cached_pages, group.pages,
                       group.cached_pages, group.free_pages, group.largest_free_run,
                       group.reserved_pages, group.used_cells, group.held_cells,
                       group.sequences.size(), group.greatest_pos);
        if (group.max_pages > group.pages)
            fmt::format_to(std::back_inserter(text), "  may grow to {} pages\n", group.max_pages);
        if (level >= 2) add_map(group, text);
        if (level >= 3) add_positions(group, text);
    }
    return text;
}

}  // namespace cellar
