#include "testing/poison.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>

namespace cellar::testing {

namespace {

void poison_rows(ggml_tensor* pool, const std::vector<bool>& owned) {
    // All bits set: a NaN as f32, f16 and bf16, and the f16 scale of every quantized block.
    const std::vector<uint8_t> row(pool->nb[1], 0xFF);
    for (size_t i = 0; i < owned.size(); i++) {
        if (!owned[i]) ggml_backend_tensor_set(pool, row.data(), i * row.size(), row.size());
    }
}

}  // namespace

std::vector<bool> owned_cells(const Memory& memory, uint32_t group) {
    const Cells& cells = memory.cells();
    const PagePool& pool = cells.pool(group);
    std::vector<bool> owned(size_t{pool.n_pages()} * pool.page_size(), false);
    const auto own = [&](PageId page, uint32_t first, uint32_t count) {
        const auto begin =
            owned.begin() + static_cast<ptrdiff_t>(value(page) * pool.page_size() + first);
        std::fill_n(begin, count, true);
    };
    for (const SeqId seq : cells.sequences()) {
        for (const Span& span : cells.spans(seq, group))
            own(span.page, span.first, span.count);
    }
    for (const CellMove& move : memory.pending()) {
        if (move.group == group) own(move.copy.from, move.copy.from_first, move.copy.count);
    }
    for (uint32_t i = 0; i < pool.n_pages(); i++) {
        if (pool.keepers(PageId{i}) > 0) own(PageId{i}, 0, pool.fill(PageId{i}));
    }
    return owned;
}

void poison(Memory& memory) {
    for (uint32_t group = 0; group < memory.cells().n_groups(); group++) {
        const std::vector<bool> owned = owned_cells(memory, group);
        for (uint32_t layer = 0; layer < memory.config().layers.size(); layer++) {
            if (!memory.keeps(layer) || memory.config().layers[layer].group != group) continue;
            poison_rows(memory.k(layer), owned);
            poison_rows(memory.v(layer), owned);
        }
    }
}

}  // namespace cellar::testing
