#include "memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "memory/pool.h"

namespace cellar {
namespace {

// How many groups the layers name: 0 .. n - 1, each by at least one layer.
Result<uint32_t> count_groups(const std::vector<LayerKv>& layers) {
    if (layers.empty()) return fail(Code::kInvalidArgument, "a memory needs at least one layer");
    std::vector<uint32_t> groups;
    groups.reserve(layers.size());
    for (const LayerKv& layer : layers)
        groups.push_back(layer.group);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    for (uint32_t i = 0; i < groups.size(); i++) {
        if (groups[i] != i) {
            return fail(Code::kInvalidArgument,
                        fmt::format("group {} has no layer, but group {} has", i, groups[i]));
        }
    }
    return static_cast<uint32_t>(groups.size());
}

PoolConfig pool_config(const MemoryConfig& config, uint32_t group) {
    PoolConfig pool{{}, config.type_k, config.type_v, config.n_cells, config.page_size};
    for (uint32_t i = 0; i < config.layers.size(); i++) {
        const LayerKv& layer = config.layers[i];
        if (layer.group != group) continue;
        pool.layers.push_back({i, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v});
    }
    return pool;
}

// Cells of each group's pool, in whole pages.
Result<uint32_t> resolve_cells(const MemoryConfig& config, uint32_t n_groups) {
    if (config.budget_bytes == 0) return whole_pages(config.n_cells, config.page_size);
    if (config.n_cells > 0) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a budget of {} bytes and one of {} cells: give one of them",
                                config.budget_bytes, config.n_cells));
    }
    uint64_t each = 0;  // bytes of one cell in all groups
    for (uint32_t group = 0; group < n_groups; group++) {
        const auto bytes = cell_bytes(pool_config(config, group));
        if (!bytes) return tl::unexpected(bytes.error());
        each += *bytes;
    }
    const uint64_t cells = (config.budget_bytes - 1) / each + 1;
    if (cells > UINT32_MAX) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a budget of {} bytes is {} cells of {}: more than can be numbered",
                                config.budget_bytes, cells, each));
    }
    return whole_pages(static_cast<uint32_t>(cells), config.page_size);
}

// Names of sequences and of their parts, for the observer.
std::string name(SeqId seq) {
    return seq == kEverySeq ? "every sequence" : fmt::format("sequence {}", value(seq));
}

std::string part(SeqId seq, Pos p0, Pos p1) {
    const Range range = make_range(p0, p1);
    if (range.end == kMaxPos) return fmt::format("{} from {} on", name(seq), range.begin);
    return fmt::format("{} from {} to before {}", name(seq), range.begin, range.end);
}

Result<void> check_threshold(std::optional<double> threshold) {
    if (!threshold || (*threshold >= 0.0 && *threshold <= 1.0)) return {};
    return fail(Code::kInvalidArgument,
                fmt::format("a compaction threshold of {}: it must lie from 0 to 1", *threshold));
}

}  // namespace

Memory::Memory(MemoryConfig config, Cells cells, std::vector<Pool> pools)
    : config_(std::move(config)), cells_(std::move(cells)), pools_(std::move(pools)) {
    std::vector<size_t> next(pools_.size(), 0);
    for (const LayerKv& layer : config_.layers)
        in_pool_.push_back(next[layer.group]++);
}

Memory::~Memory() = default;

Result<std::unique_ptr<Memory>> Memory::create(const MemoryConfig& asked,
                                               ggml_backend_buffer_type* buffer_type) {
    const auto n_groups = count_groups(asked.layers);
    if (!n_groups) return tl::unexpected(n_groups.error());
    if (auto checked = check_threshold(asked.defrag_threshold); !checked) {
        return pass(std::move(checked));
    }
    const auto n_cells = resolve_cells(asked, *n_groups);
    if (!n_cells) return tl::unexpected(n_cells.error());
    MemoryConfig config = asked;
    config.n_cells = *n_cells;

    std::vector<Pool> pools;
    for (uint32_t group = 0; group < *n_groups; group++) {
        auto pool = Pool::create(pool_config(config, group), buffer_type);
        if (!pool) return pass(std::move(pool));
        pools.push_back(std::move(*pool));
    }
    CellsConfig cells_config;
    cells_config.group_cells.assign(*n_groups, config.n_cells);
    cells_config.kinds = config.kinds;
    cells_config.page_size = config.page_size;
    cells_config.n_pos = config.n_pos;
    cells_config.grow_step = config.grow_step;
    auto cells = Cells::create(cells_config);
    if (!cells) return pass(std::move(cells));
    return std::unique_ptr<Memory>(
        new Memory(std::move(config), std::move(*cells), std::move(pools)));
}

// Tells the observer of what has succeeded.
template <class Tell>
Result<void> Memory::told(Result<void>&& result, const Tell& tell) const {
    if (observer_ && result) observer_(tell());
    return std::move(result);
}

Result<void> Memory::seq_rm(SeqId seq, Pos p0, Pos p1) {
    maybe_sparse_ = true;
    return told(cells_.seq_rm(seq, p0, p1),
                [&] { return fmt::format("removed {}", part(seq, p0, p1)); });
}

Result<void> Memory::seq_cp(SeqId from, SeqId to, Pos p0, Pos p1) {
    maybe_sparse_ = true;
    return told(cells_.seq_cp(from, to, p0, p1), [&] {
        return fmt::format("shared {} with sequence {}", part(from, p0, p1), value(to));
    });
}

Result<void> Memory::seq_keep(SeqId seq) {
    maybe_sparse_ = true;
    return told(cells_.seq_keep(seq), [&] { return fmt::format("kept only {}", name(seq)); });
}

Result<void> Memory::seq_add(SeqId seq, Pos p0, Pos p1, Pos delta) {
    if (auto ok = check_turns(); !ok) return ok;
    maybe_sparse_ = true;
    return told(cells_.seq_add(seq, p0, p1, delta),
                [&] { return fmt::format("shifted {} by {:+}", part(seq, p0, p1), delta); });
}

Result<void> Memory::seq_div(SeqId seq, Pos p0, Pos p1, int32_t d) {
    if (auto ok = check_turns(); !ok) return ok;
    maybe_sparse_ = true;
    return told(cells_.seq_div(seq, p0, p1, d),
                [&] { return fmt::format("divided {} by {}", part(seq, p0, p1), d); });
}

Result<void> Memory::set_limits(SeqId seq, const SeqLimits& limits) {
    return told(cells_.set_limits(seq, limits), [&] {
        return fmt::format("promised {} {} cells, and allowed {}", name(seq), limits.guaranteed,
                           limits.maximum);
    });
}

Result<void> Memory::check_turns() const {
    if (config_.n_pos == 1) return {};
    return fail(Code::kUnsupported,
                fmt::format("positions of {} components cannot be moved yet", config_.n_pos));
}

Result<uint32_t> Memory::defrag(uint32_t max_cells) {
    if (auto ok = cells_.check_moves_done(); !ok) return pass(std::move(ok));
    return finish_defrag(cells_.defrag(max_cells));
}

Result<uint32_t> Memory::finish_defrag(Result<uint32_t>&& moved) {
    for (const CellMove& move : pending())
        copy_cells(move);
    finish_moves();
    if (observer_ && moved && *moved > 0) observer_(fmt::format("compacted {} cells", *moved));
    return std::move(moved);
}

// A step that moved something may have left more to move.
void Memory::compact_if_due() {
    const bool free = !cells_.busy() && cells_.pending().empty();
    if (!config_.defrag_threshold || !maybe_sparse_ || !free) return;
    const auto moved =
        finish_defrag(cells_.defrag_if_above(*config_.defrag_threshold, config_.defrag_cells));
    maybe_sparse_ = moved.value_or(0) > 0;
}

Result<Plan> Memory::prepare(const Batch& batch, const SplitOptions& options) {
    compact_if_due();
    return cells_.prepare(batch, options);
}

Result<void> Memory::reserve() {
    for (Pool& pool : pools_) {
        if (auto committed = pool.commit(); !committed) return committed;
    }
    return {};
}

void Memory::copy_cells(const CellMove& move) {
    copy(move.group, move.copy, move.turns);
}

void Memory::copy(uint32_t group, const CellCopy& copy, bool turns) {
    pools_[group].copy(std::span<const CellCopy>(&copy, 1));
    if (observer_) {
        observer_(fmt::format("copied {} cells of page {} to page {} in group {}{}", copy.count,
                              value(copy.from), value(copy.to), group,
                              turns ? ", their keys to be turned" : ""));
    }
}

Result<void> Memory::clear(bool data) {
    if (auto cleared = cells_.clear(); !cleared) return cleared;
    if (data) {
        for (Pool& pool : pools_)
            pool.clear();
    }
    return told({}, [&] { return data ? "cleared, zeroing cells" : "cleared"; });
}

Result<void> Memory::apply_moves(const Plan& plan, size_t i) {
    if (!plan.open()) return fail(Code::kStale, "the plan is finished or cancelled");
    if (i != plan.committed()) {
        return fail(Code::kBadRange, fmt::format("ubatch {} cannot be computed: {} of {} is next",
                                                 i, plan.committed(), plan.size()));
    }
    for (uint32_t group = 0; group < pools_.size(); group++) {
        for (const CellCopy& due : plan.ubatch(i).groups[group].copies)
            copy(group, due, false);
    }
    return {};
}

Result<void> Memory::commit(Plan& plan, size_t i) {
    return told(cells_.commit(plan, i), [&] {
        return fmt::format("committed ubatch {} of {} with {} items", i + 1, plan.size(),
                           plan.ubatch(i).items.size());
    });
}

ggml_tensor* Memory::k(uint32_t layer) const {
    return pools_[config_.layers[layer].group].k(in_pool_[layer]);
}

ggml_tensor* Memory::v(uint32_t layer) const {
    return pools_[config_.layers[layer].group].v(in_pool_[layer]);
}

uint64_t Memory::bytes() const {
    uint64_t bytes = 0;
    for (const Pool& pool : pools_)
        bytes += pool.bytes();
    return bytes;
}

}  // namespace cellar
