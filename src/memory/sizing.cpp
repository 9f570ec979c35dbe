#include "memory/sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "memory/layers.h"

namespace cellar {
namespace {

// Cells of a sliding group's pool where it has a size of its own; 0: as many as full groups.
uint32_t own_cells(const MemoryConfig& config, uint32_t group) {
    if (!kind_of(config, group).slides() || config.keeps_windows) return 0;
    return group < config.group_cells.size() ? config.group_cells[group] : 0;
}

// In whole pages; sizes that make no sense are left to whoever checks them.
uint32_t whole(uint32_t n_cells, uint32_t page_size) {
    const auto pages = whole_pages(n_cells, page_size);
    return pages ? *pages : n_cells;
}

// A group's part of a budget.
struct Share {
    uint64_t cell_bytes = 0;
    uint64_t most = 0;  // cells that it grows to; 0: as many as there are
};

// Pools of `n` cells, or of the most that they grow to; the greatest number where it is more.
uint64_t bytes_at(const std::vector<Share>& shares, uint64_t n) {
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    uint64_t total = 0;
    for (const Share& share : shares) {
        uint64_t bytes = 0;
        const uint64_t cells = share.most > 0 ? std::min(share.most, n) : n;
        if (__builtin_mul_overflow(share.cell_bytes, cells, &bytes) ||
            __builtin_add_overflow(total, bytes, &total)) {
            return kMost;
        }
    }
    return total;
}

// The fewest cells with which pools come to `bytes`, at least 1; none if that is more than can be
// numbered. O(log of the cells).
std::optional<uint32_t> cells_for(const std::vector<Share>& shares, uint64_t bytes) {
    uint32_t low = 1, high = std::numeric_limits<uint32_t>::max();
    if (bytes_at(shares, high) < bytes) return std::nullopt;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (bytes_at(shares, middle) < bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace

uint32_t cells_of(const MemoryConfig& config, uint32_t group) {
    if (kind_of(config, group).is_recurrent()) return config.n_states;
    const uint32_t own = own_cells(config, group);
    return own > 0 ? std::min(own, config.n_cells) : config.n_cells;
}

PoolConfig pool_config(const MemoryConfig& config, uint32_t group) {
    const bool states = kind_of(config, group).is_recurrent();
    PoolConfig pool{{},
                    states ? config.type_state_k : config.type_k,
                    states ? config.type_state_v : config.type_v,
                    whole(cells_of(config, group), states ? 1 : config.page_size),
                    states ? 1 : config.page_size};
    for (uint32_t i = 0; i < config.layers.size(); i++) {
        const LayerKv& layer = config.layers[i];
        if (!layer.keeps() || layer.group != group) continue;
        // A state without one of its vectors keeps one number in its place.
        const uint32_t least = states ? 1 : 0;
        pool.layers.push_back({i, layer.n_head_kv, std::max(layer.head_dim_k, least),
                               std::max(layer.head_dim_v, least), layer.buffer_type});
    }
    return pool;
}

Result<uint32_t> resolve_cells(const MemoryConfig& config, uint32_t n_groups) {
    if (config.budget_bytes == 0) return whole_pages(config.n_cells, config.page_size);
    if (config.n_cells > 0) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a budget of {} bytes and one of {} cells: give one of them",
                                config.budget_bytes, config.n_cells));
    }
    std::vector<Share> shares;
    uint64_t fixed = 0;
    bool grows = false;  // some group without a size of its own
    for (uint32_t group = 0; group < n_groups; group++) {
        const auto bytes = cell_bytes(pool_config(config, group));
        if (!bytes) return tl::unexpected(bytes.error());
        if (kind_of(config, group).is_recurrent()) {
            fixed += *bytes * config.n_states;
            continue;
        }
        shares.push_back({*bytes, whole(own_cells(config, group), config.page_size)});
        grows = grows || shares.back().most == 0;
    }
    if (shares.empty()) return whole_pages(config.page_size, config.page_size);
    if (fixed >= config.budget_bytes) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a budget of {} bytes: {} states alone take {}",
                                config.budget_bytes, config.n_states, fixed));
    }
    // Where every group has a size of its own the budget is the length that texts may have.
    for (Share& share : shares)
        share.most = grows ? share.most : 0;
    const auto cells = cells_for(shares, config.budget_bytes - fixed);
    if (!cells) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a budget of {} bytes is more cells, of {} in all groups, than can "
                                "be numbered",
                                config.budget_bytes, bytes_at(shares, 1)));
    }
    return whole_pages(*cells, config.page_size);
}

Result<uint64_t> checkpoint_cost(const MemoryConfig& config, uint32_t n_groups) {
    uint64_t total = 0;
    for (uint32_t group = 0; group < n_groups; group++) {
        const GroupKind kind = kind_of(config, group);
        const bool slides = kind.slides() && !config.keeps_windows;
        if (!kind.is_recurrent() && !slides) continue;
        const auto bytes = cell_bytes(pool_config(config, group));
        if (!bytes) return tl::unexpected(bytes.error());
        total += *bytes * (slides ? kind.window : 1);
    }
    return total;
}

}  // namespace cellar
