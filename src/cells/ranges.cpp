#include "cells/ranges.h"

#include <algorithm>

namespace cellar {
namespace {

Range common(Range a, Range b) {
    return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

bool Ranges::intersects(Range range) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](Range r) { return !common(r, range).empty(); });
}

void Ranges::add(Range range) {
    if (range.empty()) return;
    // Nearly always behind all others; a file may bring many, one after the other.
    if (list_.empty() || list_.back().end < range.begin) return list_.push_back(range);
    std::vector<Range> list;
    for (const Range r : list_) {
        if (r.end < range.begin || range.end < r.begin) {
            list.push_back(r);
        } else {
            range = {std::min(r.begin, range.begin), std::max(r.end, range.end)};
        }
    }
    const auto at =
        std::find_if(list.begin(), list.end(), [&](Range r) { return range.begin < r.begin; });
    list.insert(at, range);
    list_ = std::move(list);
}

void Ranges::subtract(Range range) {
    if (range.empty() || !intersects(range)) return;
    std::vector<Range> list;
    for (const Range r : list_) {
        const Range before{r.begin, std::min(r.end, range.begin)};
        const Range behind{std::max(r.begin, range.end), r.end};
        if (!before.empty()) list.push_back(before);
        if (!behind.empty()) list.push_back(behind);
    }
    list_ = std::move(list);
}

void Ranges::add_from(const Ranges& other, Range range) {
    for (const Range r : other.list_)
        add(common(r, range));
}

void Ranges::move(Range range, const std::function<Range(Range)>& move) {
    Ranges inside;
    inside.add_from(*this, range);
    if (inside.empty()) return;
    subtract(range);
    for (const Range r : inside.list_)
        add(move(r));
}

}  // namespace cellar
