#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cells/batch.h"
#include "memory/memory.h"
#include "model/stepper.h"

namespace cellar {

struct DecoderOptions {
    uint32_t n_cells = 4096;  // 0: as budget_bytes says
    uint32_t page_size = 32;
    uint32_t max_ubatch = 512;
    uint32_t n_threads = 1;
    KvType type_k = KvType::kF16;
    KvType type_v = KvType::kF16;
    AttentionChoice attention = AttentionChoice::kAuto;
    Flash flash = Flash::kAuto;
    bool cascade = true;  // what sequences share is read once for all of them
    // Of the memory, see MemoryConfig.
    uint64_t budget_bytes = 0;
    uint32_t grow_step = 0;
    std::optional<double> defrag_threshold = {};
    uint32_t defrag_cells = 1024;
    // What sequences can be taken back to, and of models with recurrent layers the states that may
    // be kept: each sequence needs n_rollback + 1, as many again in a step, and 1 a checkpoint.
    bool swa_full = false;         // sliding groups keep what their windows have passed
    uint32_t n_rollback = 0;       // newest positions that a sequence can always take back
    uint32_t max_checkpoints = 0;  // of one sequence
    uint32_t n_states = 128;       // 0: as n_sequences need
    // Sequences that will hold tokens at the same time, at most: pools of sliding groups, unless
    // swa_full, get the cells that so many need (pool_sizes.h) instead of n_cells. 0: unknown.
    uint32_t n_sequences = 0;
    // Pages that each may need in a sliding group beyond those of its tokens in a row: kShiftPages
    // where texts are shifted, and kReusePages where their parts are used again.
    uint32_t spare_pages = 0;
};

// A model with its memory and compute: the loop prepare, compute, commit over a whole batch.
class Decoder {
public:
    // Receives each logits row, in the order of the batch's ubatches: the batch item, then the row.
    using OnLogits = std::function<void(size_t item, std::span<const float> row)>;

    // `model` must outlive the decoder.
    static Result<std::unique_ptr<Decoder>> create(const Model& model,
                                                   const DecoderOptions& options);

    // Computes the batch, ubatch by ubatch, or only the first `max_ubatches` of them. On error the
    // ubatches committed so far stay (pos_max of the sequences tells how far) and nothing else has
    // changed. Returns how many were committed.
    Result<size_t> decode(const Batch& batch, const OnLogits& on_logits,
                          size_t max_ubatches = SIZE_MAX);

    // Does what verbs left to be done: Stepper::apply_pending. `decode` begins with it.
    Result<void> apply_pending() { return stepper_->apply_pending(); }

    Memory& memory() { return *memory_; }
    const Memory& memory() const { return *memory_; }
    // Sequences that it has room for beside each other as far as windows and states go, whatever
    // their lengths; SIZE_MAX: any number. See pool_sizes.h.
    size_t max_texts() const { return max_texts_; }
    // As asked; UINT32_MAX where no sliding group's pool is smaller than n_cells.
    uint32_t spare_pages() const { return spare_pages_; }
    const Stepper& stepper() const { return *stepper_; }

private:
    Decoder() = default;
    SplitOptions split_;
    size_t max_texts_ = SIZE_MAX;
    uint32_t spare_pages_ = UINT32_MAX;
    std::unique_ptr<Memory> memory_;
    std::unique_ptr<Stepper> stepper_;
};

}  // namespace cellar
