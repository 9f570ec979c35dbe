#include "engine/decoder.h"

#include <algorithm>
#include <utility>

#include "engine/pool_sizes.h"

namespace cellar {

Result<std::unique_ptr<Decoder>> Decoder::create(const Model& model,
                                                 const DecoderOptions& options) {
    MemoryConfig config;
    config.layers = model.info().layers;
    config.kinds = model.info().kinds;
    config.type_k = options.type_k;
    config.type_v = options.type_v;
    config.n_cells = options.n_cells;
    config.page_size = options.page_size;
    config.n_pos = model.info().n_pos;
    config.budget_bytes = options.budget_bytes;
    config.grow_step = options.grow_step;
    config.defrag_threshold = options.defrag_threshold;
    config.defrag_cells = options.defrag_cells;
    config.keeps_windows = options.swa_full;
    config.n_rollback = options.n_rollback;
    config.max_checkpoints = options.max_checkpoints;
    config.n_states = options.n_states;
    config.max_ubatch = options.max_ubatch;
    size_pools(config, options.n_sequences, options.spare_pages);
    auto memory = Memory::create(config);
    if (!memory) {
        return pass(std::move(memory));
    }
    auto stepper = Stepper::create(model, **memory,
                                   {.n_threads = options.n_threads,
                                    .max_ubatch = options.max_ubatch,
                                    .attention = options.attention,
                                    .flash = options.flash,
                                    .cascade = options.cascade});
    if (!stepper) {
        return pass(std::move(stepper));
    }
    std::unique_ptr<Decoder> decoder(new Decoder());
    decoder->split_.max_ubatch = options.max_ubatch;
    decoder->max_texts_ = texts_that_fit((*memory)->config(), options.n_sequences);
    if (has_small_pools((*memory)->config())) {
        decoder->spare_pages_ = options.spare_pages;
    }
    decoder->memory_ = std::move(*memory);
    decoder->stepper_ = std::move(*stepper);
    return decoder;
}

Result<size_t> Decoder::decode(const Batch& batch, const OnLogits& on_logits, size_t max_ubatches) {
    if (auto checked = stepper_->check(batch); !checked) {
        return pass(std::move(checked));
    }
    if (auto applied = stepper_->apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    auto plan = memory_->prepare(batch, split_);
    if (!plan) {
        return pass(std::move(plan));
    }
    const size_t n = std::min(plan->size(), max_ubatches);
    for (size_t i = 0; i < n; i++) {
        if (auto moved = memory_->apply_moves(*plan, i); !moved) {
            return pass(std::move(moved));
        }
        auto logits = stepper_->compute(batch, *plan, i);
        if (!logits) {
            return pass(std::move(logits));
        }
        if (auto committed = memory_->commit(*plan, i); !committed) {
            return pass(std::move(committed));
        }
        for (size_t row = 0; row < logits->items.size(); row++) {
            on_logits(logits->items[row], logits->row(row));
        }
    }
    return n;
}

}  // namespace cellar
