#include "engine/context_shift.h"

#include <algorithm>
#include <vector>

namespace cellar {

std::optional<size_t> tokens_to_drop(size_t held, size_t keep, size_t most) {
    if (held <= most) {
        return 0;
    }
    if (most < keep) {
        return std::nullopt;
    }
    size_t left = held;
    while (left > most) {
        left -= (left - keep + 1) / 2;
    }
    return held - left;
}

size_t drop_tokens(Memory& memory, SeqId seq, size_t held, size_t keep, size_t n) {
    const auto begin = static_cast<Pos>(keep), end = static_cast<Pos>(keep + n);
    if (memory.seq_rm(seq, begin, end) && memory.seq_add(seq, end, kOpen, begin - end)) {
        return held - n;
    }
    if (memory.seq_rm(seq, begin, kOpen)) {
        return keep;
    }
    (void)memory.seq_rm(seq, 0, kOpen);  // whole sequences can always be removed
    return 0;
}

uint64_t cells_held(const Memory& memory, SeqId seq) {
    const Cells& cells = memory.cells();
    size_t most = 0;
    for (uint32_t group = 0; group < cells.n_groups(); group++) {
        if (cells.kind(group).is_recurrent()) {
            most = std::max<size_t>(most, cells.spans(seq, group).empty() ? 0 : 1);
            continue;
        }
        std::vector<PageId> pages;
        for (const Span& span : cells.spans(seq, group)) {
            pages.push_back(span.page);
        }
        std::sort(pages.begin(), pages.end());
        const auto end = std::unique(pages.begin(), pages.end());
        most = std::max(most, static_cast<size_t>(end - pages.begin()));
    }
    return uint64_t{most} * cells.page_size();
}

}  // namespace cellar
