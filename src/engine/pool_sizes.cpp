#include "engine/pool_sizes.h"

#include <algorithm>
#include <limits>

namespace cellar {
namespace {

// Sizes beyond it are no sizes; bounded by it, products of two of them do not overflow.
constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();

// As GroupKind::carries: what the next query sees, and always the newest token.
uint64_t cells_carried(uint32_t window) {
    return window > 1 ? window - 1 : 1;
}

uint64_t pages_touched(uint64_t n_cells, uint64_t page_size) {
    return (n_cells - 1 + page_size - 1) / page_size + 1;
}

// Pages that `n` new cells open at most behind sequences that each carry `carried` cells. Each
// sequence's first page is opened by as many cells as make its row touch one more, the next ones by
// page_size.
uint64_t pages_opened(uint64_t n, uint64_t carried, uint64_t n_sequences, uint64_t page_size) {
    const uint64_t first = (page_size - (carried - 1) % page_size) % page_size + 1;
    const uint64_t n_firsts = std::min(n / first, n_sequences);
    return n_firsts + (n_firsts > 0 ? (n - n_firsts * first) / page_size : 0);
}

}  // namespace

uint64_t pages_at_rest(const MemoryConfig& config, uint32_t window, uint32_t spare) {
    const uint64_t carried = cells_carried(window);
    const uint64_t checkpoint = pages_touched(carried, config.page_size);
    return pages_touched(carried + config.n_rollback, config.page_size) +
           std::min(config.max_checkpoints * checkpoint, kMost) + spare;
}

uint32_t sliding_cells(const MemoryConfig& config, uint32_t window, uint32_t n_sequences,
                       uint32_t spare) {
    const uint64_t rest = std::min(pages_at_rest(config, window, spare), kMost);
    const uint64_t opened =
        pages_opened(config.max_ubatch, cells_carried(window) + config.n_rollback, n_sequences,
                     config.page_size);
    const uint64_t pages = std::min(n_sequences * rest, kMost) + opened;
    const uint64_t most = kMost / config.page_size;
    return static_cast<uint32_t>(std::min(pages, most) * config.page_size);
}

uint64_t sequence_states(const MemoryConfig& config) {
    return 2 * (config.n_rollback + uint64_t{1}) + config.max_checkpoints;
}

void size_pools(MemoryConfig& config, uint32_t n_sequences, uint32_t spare) {
    if (n_sequences == 0 || config.page_size == 0) return;
    config.group_cells.assign(config.kinds.size(), 0);
    for (size_t g = 0; g < config.kinds.size(); g++) {
        if (config.kinds[g].slides() && !config.keeps_windows) {
            config.group_cells[g] =
                sliding_cells(config, config.kinds[g].window, n_sequences, spare);
        }
    }
    if (config.n_states == 0) {
        config.n_states = static_cast<uint32_t>(
            std::min(n_sequences * std::min(sequence_states(config), kMost), kMost));
    }
}

bool has_small_pools(const MemoryConfig& config) {
    return !config.keeps_windows &&
           std::any_of(config.group_cells.begin(), config.group_cells.end(),
                       [&](uint32_t n) { return n > 0 && n < config.n_cells; });
}

size_t texts_that_fit(const MemoryConfig& config, uint32_t n_sequences) {
    size_t most = n_sequences > 0 ? n_sequences : SIZE_MAX;
    const bool recurrent = std::any_of(config.kinds.begin(), config.kinds.end(),
                                       [](const GroupKind& kind) { return kind.is_recurrent(); });
    if (recurrent) most = std::min<size_t>(most, config.n_states / sequence_states(config));
    return most;
}

}  // namespace cellar
