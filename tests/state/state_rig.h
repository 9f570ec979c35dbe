#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cells/audit.h"
#include "state/loader.h"
#include "state/saving.h"
#include "testing/poison.h"
#include "testing/seen_hash.h"

namespace cellar::testing {

// What kinds of groups a memory has, one layer or two each.
struct StateKind {
    const char* name;
    std::vector<GroupKind> kinds;
    std::vector<LayerKv> layers;
};

inline std::vector<StateKind> state_kinds() {
    const GroupKind full = GroupKind::full(), window = GroupKind::sliding(8);
    return {
        {"full", {full}, {{0, 2, 32, 64}, {0, 1, 64, 32}}},
        {"window", {window}, {{0, 2, 32, 64}, {0, 1, 64, 32}}},
        {"recurrent", {GroupKind::recurrent()}, {{0, 1, 6, 40}, {0, 1, 6, 40}}},
        {"hybrid",
         {full, GroupKind::recurrent(), window},
         {{0, 2, 32, 64}, {1, 1, 6, 40}, {2, 1, 64, 32}, {0, 1, 32, 32}}},
        {"shared",
         {window, full},
         {{0, 2, 32, 64}, {0, 2, 32, 64, 0}, LayerKv::none(), {1, 1, 64, 32}, {1, 1, 64, 32, 3}}}};
}

struct RigOptions {
    StateKind kind = state_kinds()[0];
    uint32_t page_size = 16;
    uint32_t n_cells = 256;
    KvType type_k = KvType::kF16;
    KvType type_v = KvType::kF16;
    uint32_t n_pos = 1;
    uint32_t max_checkpoints = 4;
    uint32_t n_rollback = 2;
    uint32_t grow_step = 0;
    // Layers take turns with these; null: host memory.
    std::vector<ggml_backend_buffer_type_t> buffers = {nullptr};
};

// A memory whose every written row has bytes of its own, as a graph would give it, but no model.
class StateRig {
public:
    explicit StateRig(const RigOptions& options = {}) {
        MemoryConfig config;
        config.layers = options.kind.layers;
        config.kinds = options.kind.kinds;
        config.page_size = options.page_size;
        config.n_cells = options.n_cells;
        config.n_states = 64;
        config.type_k = options.type_k;
        config.type_v = options.type_v;
        config.n_pos = options.n_pos;
        config.max_checkpoints = options.max_checkpoints;
        config.n_rollback = options.n_rollback;
        config.grow_step = options.grow_step;
        for (size_t i = 0; i < config.layers.size(); i++)
            config.layers[i].buffer_type = options.buffers[i % options.buffers.size()];
        auto made = Memory::create(config);
        if (!made) throw std::runtime_error(made.error().message);
        memory_ = std::move(*made);
    }

    Memory& operator*() { return *memory_; }
    Memory* operator->() { return memory_.get(); }
    const Memory* operator->() const { return memory_.get(); }

    // In a model with images, tokens stand three to a time.
    Result<void> try_append(int seq, uint32_t n, bool checkpoint = false) {
        poison(*memory_);
        Batch batch(memory_->config().n_pos);
        const Pos next = memory_->seq_pos_max(SeqId{seq}) + 1;
        const SeqId id{seq};
        for (uint32_t i = 0; i < n; i++) {
            if (batch.n_pos() == 1) {
                batch.add(0, id);
            } else {
                const auto at = static_cast<Pos>(i);
                const std::vector<Pos> place = {next + at, next + at / 3, next + at % 3, 0};
                batch.add_at(0, std::span(&id, 1), std::span(place).first(batch.n_pos()));
            }
        }
        if (checkpoint && n > 0) batch.add_checkpoint();
        SplitOptions options;
        options.splitting = Splitting::kPerSequence;
        options.max_ubatch = 7;
        auto plan = memory_->prepare(batch, options);
        if (!plan) return pass(std::move(plan));
        for (size_t i = 0; i < plan->size(); i++) {
            if (auto moved = memory_->apply_moves(*plan, i); !moved) return moved;
            write(plan->ubatch(i));
            if (auto done = memory_->commit(*plan, i); !done) return done;
        }
        return {};
    }

    void append(int seq, uint32_t n, bool checkpoint = false) {
        if (n == 0) return;
        const auto done = try_append(seq, n, checkpoint);
        ASSERT_TRUE(done) << done.error().message;
    }

    uint64_t hash(int seq) const { return seen_hash(*memory_, SeqId{seq}); }

    void expect_sound() const {
        const auto finding = audit(memory_->cells());
        EXPECT_FALSE(finding) << *finding;
    }

private:
    void write(const UbatchPlan& ubatch) {
        for (uint32_t layer = 0; layer < memory_->config().layers.size(); layer++) {
            if (!memory_->keeps(layer)) continue;
            const uint32_t group = memory_->config().layers[layer].group;
            for (const uint32_t row : ubatch.groups[group].cells) {
                write_row(memory_->k(layer), row);
                write_row(memory_->v(layer), row);
            }
        }
    }

    void write_row(ggml_tensor* pool, uint32_t row) {
        std::vector<uint8_t> bytes(pool->nb[1]);
        for (uint8_t& byte : bytes)
            byte = static_cast<uint8_t>(++written_ * 2654435761u >> 24);
        ggml_backend_tensor_set(pool, bytes.data(), row * bytes.size(), bytes.size());
    }

    std::unique_ptr<Memory> memory_;
    uint32_t written_ = 0;
};

inline Identity test_identity() {
    Identity identity;
    identity.model = "test";
    identity.weights.fill(1);
    identity.tokenizer.fill(2);
    identity.rope.fill(3);
    Identity::Adapter adapter;
    adapter.content.fill(4);
    adapter.scale = 0.5f;
    identity.adapters = {adapter};
    return identity;
}

// The bytes of a save of these sequences; none: of all.
inline std::vector<std::byte> save(StateRig& rig, const std::vector<int>& seqs = {},
                                   const SaveOptions& options = {}) {
    const std::vector<Token> tokens = {5, 6, 7};
    std::vector<SequenceToSave> list;
    for (const int seq : seqs)
        list.push_back({SeqId{seq}, tokens});
    auto saving = Saving::begin(*rig, test_identity(), list, options);
    if (!saving) throw std::runtime_error(saving.error().message);
    MemorySink sink;
    if (auto written = saving->write(sink); !written)
        throw std::runtime_error(written.error().message);
    EXPECT_TRUE(options.compress ? sink.bytes().size() <= saving->size()
                                 : sink.bytes().size() == saving->size());
    return sink.bytes();
}

inline Result<std::vector<LoadedSequence>> load(StateRig& rig, std::span<const std::byte> bytes,
                                                const LoadStateOptions& options = {},
                                                const Identity& identity = test_identity()) {
    poison(*rig);
    MemorySource source(bytes);
    return load_state(*rig, identity, source, options);
}

inline LoadStateOptions into(int seq) {
    LoadStateOptions options;
    options.into = SeqId{seq};
    return options;
}

}  // namespace cellar::testing
