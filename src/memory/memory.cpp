#include "memory/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "memory/layers.h"
#include "memory/pool.h"
#include "memory/sizing.h"

namespace cellar {
namespace {

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
    for (const LayerKv& layer : config_.layers) {
        in_pool_.push_back(layer.shares    ? in_pool_[*layer.shares]
                           : layer.keeps() ? next[layer.group]++
                                           : 0);
    }
}

Memory::~Memory() = default;

Result<std::unique_ptr<Memory>> Memory::create(const MemoryConfig& asked) {
    const auto n_groups = check_layers(asked);
    if (!n_groups) return tl::unexpected(n_groups.error());
    if (auto checked = check_threshold(asked.defrag_threshold); !checked) {
        return pass(std::move(checked));
    }
    const auto n_cells = resolve_cells(asked, *n_groups);
    if (!n_cells) return tl::unexpected(n_cells.error());
    MemoryConfig config = asked;
    config.n_cells = *n_cells;
    for (LayerKv& layer : config.layers) {
        if (layer.keeps_none()) layer.group = 0;
    }

    std::vector<Pool> pools;
    for (uint32_t group = 0; group < *n_groups; group++) {
        auto pool = Pool::create(pool_config(config, group));
        if (!pool) return pass(std::move(pool));
        pools.push_back(std::move(*pool));
    }
    CellsConfig cells_config;
    for (uint32_t group = 0; group < *n_groups; group++) {
        cells_config.group_cells.push_back(cells_of(config, group));
    }
    if (config.checkpoint_bytes > 0) {
        const auto cost = checkpoint_cost(config, *n_groups);
        if (!cost) return tl::unexpected(cost.error());
        cells_config.max_checkpoints_all = static_cast<uint32_t>(
            std::min<uint64_t>(config.checkpoint_bytes / std::max<uint64_t>(*cost, 1), UINT32_MAX));
    }
    cells_config.keeps_windows = config.keeps_windows;
    cells_config.n_rollback = config.n_rollback;
    cells_config.max_checkpoints = config.max_checkpoints;
    cells_config.max_ubatch = config.max_ubatch;
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

Result<void> Memory::checkpoint(SeqId seq) {
    return told(cells_.checkpoint(seq), [&] {
        return fmt::format("kept {} as it is at {}", name(seq), cells_.seq_pos_max(seq));
    });
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
    maybe_sparse_ = true;
    return told(cells_.seq_add(seq, p0, p1, delta),
                [&] { return fmt::format("shifted {} by {:+}", part(seq, p0, p1), delta); });
}

Result<void> Memory::seq_div(SeqId seq, Pos p0, Pos p1, int32_t d) {
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

Result<Loading> Memory::begin_load(LoadRequest request) {
    return Loading::begin(cells_, std::move(request));
}

void Memory::finish_load(Loading& loading) {
    loading.commit();
    maybe_sparse_ = true;
    if (observer_) observer_("loaded sequences");
}

ggml_tensor* Memory::k(uint32_t layer) const {
    if (config_.layers[layer].keeps_none()) return nullptr;
    return pools_[config_.layers[layer].group].k(in_pool_[layer]);
}

ggml_tensor* Memory::v(uint32_t layer) const {
    if (config_.layers[layer].keeps_none()) return nullptr;
    return pools_[config_.layers[layer].group].v(in_pool_[layer]);
}

uint64_t Memory::bytes() const {
    uint64_t bytes = 0;
    for (const Pool& pool : pools_)
        bytes += pool.bytes();
    return bytes;
}

}  // namespace cellar
