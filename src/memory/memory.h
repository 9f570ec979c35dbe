#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cells/cells.h"
#include "cells/loading.h"
#include "memory/kv_type.h"

struct ggml_tensor;
struct ggml_backend_buffer_type;

namespace cellar {

class Pool;

// The KV of one model layer. A row is what one token writes. In a recurrent group a row is a state:
// two vectors of head_dim_k and head_dim_v numbers (0 is kept as 1); n_head_kv is 1.
struct LayerKv {
    uint32_t group = 0;
    uint32_t n_head_kv = 0;
    uint32_t head_dim_k = 0;
    uint32_t head_dim_v = 0;
    // Set: this layer has no KV of its own, and its queries attend to that of the layer with this
    // index, as the last layers of Gemma 3n and Gemma 4 do. That one is an earlier layer that keeps
    // its own, of the same group, which is not recurrent, with the same heads and widths.
    std::optional<uint32_t> shares = {};
    // Where its rows are; null: host memory, address space that is committed as pages are first
    // used. On any other buffer type the whole pool is allocated at once.
    ggml_backend_buffer_type* buffer_type = nullptr;

    // A layer that keeps nothing, of no group: a feed-forward network alone, as hybrid models have
    // (Nemotron-H).
    static LayerKv none() { return {}; }

    bool keeps_none() const {
        return !shares && n_head_kv == 0 && head_dim_k == 0 && head_dim_v == 0;
    }
    bool keeps() const { return !shares && !keeps_none(); }  // rows of its own
};

struct MemoryConfig {
    std::vector<LayerKv> layers;  // by index of the model's layers; at least one keeps rows
    KvType type_k = KvType::kF16;
    KvType type_v = KvType::kF16;
    // How many cells each group's pool may have: n_cells, or else as many as budget_bytes of keys
    // and values (all layers) come to. Rounded up to whole pages; one of the two is 0.
    uint32_t n_cells = 0;
    uint32_t page_size = 32;       // cells; a power of two from 1 to 256
    uint32_t n_pos = 1;            // components of a position; 4 for M-RoPE
    std::vector<GroupKind> kinds;  // of each group; where none is given: full
    uint64_t budget_bytes = 0;
    // Cells that pools begin with, and grow by when they are full; 0: all from the start. Tensors
    // reach to the budget from the start, so that growing copies nothing: a pool that grows late
    // uses again what it has before it touches memory that it never used.
    uint32_t grow_step = 0;
    // Above it `prepare` compacts first, see Cells::defrag_if_above; none: only `defrag` does.
    std::optional<double> defrag_threshold;
    uint32_t defrag_cells = 1024;  // of each group, that one such step moves at most
    // Cells of each sliding group's pool; 0 or none: as many as full groups have. A sequence needs
    // window + n_rollback + max_ubatch of them and two pages, and a window for each checkpoint.
    std::vector<uint32_t> group_cells = {};
    // Recurrent groups: states that a pool holds, and their types. A sequence at rest needs
    // n_rollback + 1 of them and one for each checkpoint, and n_rollback + 1 more in a step.
    uint32_t n_states = 64;
    KvType type_state_k = KvType::kF32;
    KvType type_state_v = KvType::kF32;
    // See CellsConfig. Of checkpoints, besides: what all of them together may keep alive, each
    // counted with a state or a window of every such layer, shared or not; 0: no limit.
    bool keeps_windows = false;
    uint32_t n_rollback = 0;
    uint32_t max_checkpoints = 0;
    uint64_t checkpoint_bytes = 0;
    uint32_t max_ubatch = 512;
};

// An attention memory: the cells' bookkeeping and the tensors that hold their keys and values.
//
//   auto plan = memory->prepare(batch, options);           // nothing is visible yet
//   for (size_t i = 0; i < plan->size(); i++) {
//       memory->apply_moves(*plan, i);                     // page copies that are due
//       ...compute ubatch i: write k(layer), v(layer) at plan->ubatch(i).groups[g].cells, attend...
//       memory->commit(*plan, i);                          // now its cells are visible
//   }
//
// Verbs are those of Cells, with the same results. Some leave moves pending, which whoever computes
// must do before the next `prepare`. Not thread-safe.
class Memory {
public:
    ~Memory();

    // Errors: kInvalidArgument for absurd sizes, kUnsupported for a type whose block does not
    // divide a head's width, kBackend if allocation fails. What came of the budget is in config()
    // and bytes().
    static Result<std::unique_ptr<Memory>> create(const MemoryConfig& config);

    Result<void> seq_rm(SeqId seq, Pos p0, Pos p1);
    Result<void> can_rm(SeqId seq, Pos p0, Pos p1) const { return cells_.can_rm(seq, p0, p1); }
    Result<void> checkpoint(SeqId seq);
    Result<void> seq_cp(SeqId from, SeqId to, Pos p0, Pos p1);
    Result<void> seq_keep(SeqId seq);
    // Keys stay as they are: attention turns them to where they are seen. Of positions of several
    // components all move alike.
    Result<void> seq_add(SeqId seq, Pos p0, Pos p1, Pos delta);
    // Whether seq_add can move parts of sequences: asked before anything is tried.
    bool can_shift() const { return cells_.can_shift(); }
    // Leaves moves pending.
    Result<void> seq_div(SeqId seq, Pos p0, Pos p1, int32_t d);
    // Compaction, the copies included. O(pool + spans + cells moved). kBusy while moves are
    // pending.
    Result<uint32_t> defrag(uint32_t max_cells);
    // Forgets every sequence. With `data` every cell is zeroed too: O(pool), and on host memory
    // what was committed is given back.
    Result<void> clear(bool data);

    // Moves that verbs left to be done, in order: for each, copy_cells, and where it `turns` its
    // keys must be turned from the position of the source to that of the target. Sources stay as
    // they are until finish_moves, so all may be begun anew if something fails.
    std::span<const CellMove> pending() const { return cells_.pending(); }
    void copy_cells(const CellMove& move);
    void finish_moves() { cells_.finish_moves(); }

    // Cells that a sequence may count on, and may hold at most: Cells::set_limits.
    Result<void> set_limits(SeqId seq, const SeqLimits& limits);

    // Commits host memory for all that the pools may ever hold, before first use instead of page by
    // page, so that no later step finds the machine short. O(bytes). Errors: kBackend.
    Result<void> reserve();

    Pos seq_pos_min(SeqId seq) const { return cells_.seq_pos_min(seq); }
    Pos seq_pos_max(SeqId seq) const { return cells_.seq_pos_max(seq); }

    // As Cells::prepare. Above the defrag_threshold it first moves up to defrag_cells of each
    // group, unless no verb was called since the last such look.
    Result<Plan> prepare(const Batch& batch, const SplitOptions& options);
    // Copies the cells that ubatch `i` needs elsewhere. Call it before computing; again does no
    // harm. Errors: kStale for a finished or cancelled plan, kBadRange unless `i` is its next.
    Result<void> apply_moves(const Plan& plan, size_t i);
    Result<void> commit(Plan& plan, size_t i);

    // Takes pages for cells that are to be loaded, visible to nobody until `finish_load`: see
    // Loading::begin. Their rows are written with write_rows (rows.h).
    Result<Loading> begin_load(LoadRequest request);
    // Makes them visible: Loading::commit.
    void finish_load(Loading& loading);

    // From now on `observer` hears in a line what was done, as soon as it was: verbs, commits,
    // shifts, every copy of cells, compaction. It may look at cells(), and must change nothing.
    using Observer = std::function<void(std::string_view what)>;
    void set_observer(Observer observer) { observer_ = std::move(observer); }

    const Cells& cells() const { return cells_; }
    // As asked, with n_cells in whole pages, whichever the budget was given in, and layers that
    // keep nothing put into group 0.
    const MemoryConfig& config() const { return config_; }

    // Whether the layer has rows of its own. For one that has none its tensors are not its own
    // either: whoever goes over all rows passes it over.
    bool keeps(uint32_t layer) const { return config_.layers[layer].keeps(); }

    // The pools of a layer's keys and values, [n_head_kv * head_dim, n_cells + 1]; those of the
    // layer that it shares with, and null for a layer that keeps nothing. The last row stays zero,
    // for padding. Write them through ggml_set_rows with a plan's cells as row numbers,
    // nowhere else.
    ggml_tensor* k(uint32_t layer) const;
    ggml_tensor* v(uint32_t layer) const;

    // Bytes of the pools' address space, all groups and layers.
    uint64_t bytes() const;

private:
    Memory(MemoryConfig config, Cells cells, std::vector<Pool> pools);
    template <class Tell>
    Result<void> told(Result<void>&& result, const Tell& tell) const;
    void copy(uint32_t group, const CellCopy& copy, bool turns);
    Result<uint32_t> finish_defrag(Result<uint32_t>&& moved);
    void compact_if_due();

    const MemoryConfig config_;
    Cells cells_;
    std::vector<Pool> pools_;      // by group
    std::vector<size_t> in_pool_;  // by layer: which of its pool's layers it is, or shares
    Observer observer_;            // empty: nobody listens
    bool maybe_sparse_ = false;    // a verb was called since compaction last found nothing to do
};

}  // namespace cellar
