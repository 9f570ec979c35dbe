#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "attention/reference.h"
#include "attention/workspace.h"
#include "cells/batch.h"
#include "memory/memory.h"
#include "testing/poison.h"

namespace cellar::testing {

// A way to compute attention.
struct Path {
    const char* name;
    AttentionOptions options;

    bool is_graph() const { return options.path == AttentionPath::kGraph; }
};

inline std::ostream& operator<<(std::ostream& out, const Path& path) {
    return out << path.name;
}

inline const auto kPaths =
    ::testing::Values(Path{"kernel", {}}, Path{"kernel_alone", {.share = false}},
                      Path{"flash", {.path = AttentionPath::kGraph, .flash = true}},
                      Path{"softmax", {.path = AttentionPath::kGraph, .flash = false}});

struct RigConfig {
    LayerKv layer{0, 2, 32, 32};
    uint32_t n_head = 4;
    KvType type_k = KvType::kF32;
    KvType type_v = KvType::kF32;
    uint32_t n_cells = 512;
    uint32_t page_size = 8;
    uint32_t n_pos = 1;
    GroupKind kind;
    AttentionOptions path;
    int n_threads = 2;
    AttendParams params{0.2f, 0.0f, 0.0f};
    SplitOptions split;
    uint32_t n_sharing = 0;  // further layers, which attend to the first one's keys and values
};

inline double difference(std::span<const float> a, std::span<const double> b) {
    double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
        const double d = std::abs(a[i] - b[i]);
        most = d <= most || d > most ? std::max(most, d) : std::numeric_limits<double>::infinity();
    }
    return most;
}

// One layer of attention on a small memory, and those that share what it keeps, with keys, values
// and queries drawn at random, beside a naive model of it: for each sequence the list of what was
// written for it. Before every batch all cells that nobody owns are NaN. Every output is compared
// with double-precision attention over the naive lists, so it is wrong if a cell is missed,
// foreign, or changed since it was written.
class AttentionRig {
public:
    explicit AttentionRig(const RigConfig& config)
        : config_(config), workspace_(static_cast<uint32_t>(config.n_threads)) {
        MemoryConfig memory;
        memory.layers.assign(1 + config.n_sharing, config.layer);
        for (uint32_t i = 1; i <= config.n_sharing; i++)
            memory.layers[i].shares = 0;
        memory.type_k = config.type_k;
        memory.type_v = config.type_v;
        memory.n_cells = config.n_cells;
        memory.page_size = config.page_size;
        memory.n_pos = config.n_pos;
        memory.keeps_windows = true;  // the reference never forgets, and tests rewind
        memory.kinds = {config.kind};
        auto made = Memory::create(memory);
        EXPECT_TRUE(made) << made.error().message;
        memory_ = std::move(*made);
        backend_.reset(ggml_backend_cpu_init());
        ggml_backend_cpu_set_n_threads(backend_.get(), config.n_threads);
    }

    // Computes the batch. Returns the greatest difference of an output from the reference, infinite
    // if any is NaN.
    double run(const Batch& batch) {
        poison(*memory_);
        plans_.clear();
        auto plan = memory_->prepare(batch, config_.split);
        EXPECT_TRUE(plan) << plan.error().message;
        double most = plan ? 0 : std::numeric_limits<double>::infinity();
        for (size_t i = 0; plan && i < plan->size(); i++) {
            EXPECT_TRUE(memory_->apply_moves(*plan, i));
            const UbatchPlan& ubatch = plan->ubatch(i);
            plans_.push_back(plan_attention(*memory_, ubatch, 0, config_.path));
            compute(ubatch);
            record(batch, ubatch);
            most = std::max(most, compare(batch, ubatch));
            EXPECT_TRUE(memory_->commit(*plan, i));
        }
        return most;
    }

    // Appends `n` items to each of the sequences, neighbours together.
    double append(const std::vector<int>& seqs, uint32_t n) {
        Batch batch(config_.n_pos);
        for (const int seq : seqs) {
            for (uint32_t i = 0; i < n; i++)
                batch.add(0, SeqId{seq});
        }
        return run(batch);
    }

    void fork(int from, int to) {
        EXPECT_TRUE(memory_->seq_cp(SeqId{from}, SeqId{to}, -1, -1));
        lists_[to] = lists_[from];
    }

    // `turn`: what a kept key [n_head_kv * head_dim_k] becomes when it moves by `delta`.
    template <class Turn>
    void shift(int seq, Pos p0, Pos delta, const Turn& turn) {
        EXPECT_TRUE(memory_->seq_add(SeqId{seq}, p0, -1, delta));
        for (Row& row : lists_[seq]) {
            if (row.pos < p0) continue;
            row.pos += delta;
            row.k = turn(row.k, delta);
        }
    }

    void remove_range(int seq, Pos p0, Pos p1) {
        EXPECT_TRUE(memory_->seq_rm(SeqId{seq}, p0, p1));
        std::erase_if(lists_[seq], [&](const Row& row) { return row.pos >= p0 && row.pos < p1; });
    }

    void remove_tail(int seq, Pos from) {
        EXPECT_TRUE(memory_->seq_rm(SeqId{seq}, from, -1));
        std::erase_if(lists_[seq], [&](const Row& row) { return row.pos >= from; });
    }

    // The greatest difference of a kept key or value from what was given to keep.
    double kept_error() const { return kept_error_; }

    // What the ubatches of the last batch attended to.
    const std::vector<AttentionPlan>& plans() const { return plans_; }
    const AttentionPlan& plan() const { return plans_.at(0); }
    // Of the last ubatch.
    const std::vector<float>& out(size_t layer = 0) const { return out_[layer]; }
    // All that a memory is for: a prompt cut into ubatches, decoding, forks of a half-filled page
    // that go apart, a rejected tail, sequences together in one batch.
    void expect_through_a_history(double tolerance) {
        EXPECT_LE(append({0}, 61), tolerance);
        EXPECT_LE(append({0}, 1), tolerance);
        fork(0, 1);
        fork(0, 2);
        EXPECT_LE(append({0, 1, 2}, 1), tolerance);
        EXPECT_LE(append({2, 0}, 5), tolerance);
        remove_tail(1, 40);
        EXPECT_LE(append({1, 3}, 9), tolerance);
        EXPECT_LE(append({3, 1, 0, 2}, 1), tolerance);
    }

    // How often the last step copied rows out of the pools to attend to them.
    int gathers() const { return gathers_; }
    Memory& memory() { return *memory_; }
    size_t size(int seq) { return lists_[seq].size(); }

private:
    struct Row {
        Pos pos = 0;
        std::vector<float> k, v;  // as they were kept
    };

    void draw(std::vector<float>& values, size_t n) {
        values.resize(n);
        std::normal_distribution<float> normal;
        std::generate(values.begin(), values.end(), [&] { return normal(random_); });
    }

    void compute(const UbatchPlan& ubatch) {
        const size_t n_layers = 1 + config_.n_sharing, n_tensors = 128 * n_layers;
        const auto n = static_cast<int64_t>(ubatch.items.size());
        const LayerKv& layer = config_.layer;
        const ggml_context_ptr ctx(
            ggml_init({.mem_size = n_tensors * ggml_tensor_overhead() +
                                   ggml_graph_overhead_custom(n_tensors, false),
                       .mem_buffer = nullptr,
                       .no_alloc = true}));
        ggml_cgraph* graph = ggml_new_graph_custom(ctx.get(), n_tensors, false);
        const auto input = [&](uint32_t width, uint32_t heads) {
            ggml_tensor* tensor = ggml_new_tensor_3d(ctx.get(), GGML_TYPE_F32, width, heads, n);
            ggml_set_input(tensor);
            return tensor;
        };
        ggml_tensor* k = input(layer.head_dim_k, layer.n_head_kv);
        ggml_tensor* v = input(layer.head_dim_v, layer.n_head_kv);
        const auto attention = Attention::create(ctx.get(), *memory_, 0, shape_of(plans_.back()),
                                                 config_.path, &workspace_);
        std::vector<ggml_tensor*> q, out;
        for (uint32_t i = 0; i < n_layers; i++) {
            q.push_back(input(layer.head_dim_k, config_.n_head));
            out.push_back(attention->attend(graph, i, q[i], i == 0 ? k : nullptr,
                                            i == 0 ? v : nullptr, config_.params));
            EXPECT_EQ(out[i]->ne[0], config_.n_head * layer.head_dim_v);
            EXPECT_EQ(out[i]->ne[1], n);
            ggml_set_output(out[i]);
        }
        // From the last layer to the first: what they read must be written all the same.
        for (size_t i = n_layers; i-- > 0;)
            ggml_build_forward_expand(graph, out[i]);
        count_gathers(graph);
        const ggml_gallocr_ptr allocator(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
        ASSERT_TRUE(ggml_gallocr_alloc_graph(allocator.get(), graph));
        q_.resize(n_layers);
        out_.resize(n_layers);
        for (size_t i = 0; i < n_layers; i++)
            give(q[i], q_[i]);
        give(k, k_);
        give(v, v_);
        attention->set_inputs(plans_.back(), ubatch);
        ASSERT_EQ(ggml_backend_graph_compute(backend_.get(), graph), GGML_STATUS_SUCCESS);
        for (size_t i = 0; i < n_layers; i++) {
            out_[i].resize(static_cast<size_t>(ggml_nelements(out[i])));
            ggml_backend_tensor_get(out[i], out_[i].data(), 0, ggml_nbytes(out[i]));
        }
    }

    void count_gathers(ggml_cgraph* graph) {
        gathers_ = 0;
        for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
            const ggml_tensor* node = ggml_graph_node(graph, i);
            if (node->op != GGML_OP_GET_ROWS) continue;
            const ggml_tensor* pool = node->src[0]->view_src;
            gathers_ += pool == memory_->k(0) || pool == memory_->v(0) ? 1 : 0;
        }
    }

    void give(ggml_tensor* tensor, std::vector<float>& values) {
        draw(values, static_cast<size_t>(ggml_nelements(tensor)));
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }

    static std::span<const float> part(const std::vector<float>& values, size_t i, size_t n) {
        return std::span<const float>(values).subspan(i * (values.size() / n), values.size() / n);
    }

    double error_of(const std::vector<float>& kept, std::span<const float> given) const {
        return difference(kept, std::vector<double>(given.begin(), given.end()));
    }

    // Enters what the graph has just written into the naive lists.
    void record(const Batch& batch, const UbatchPlan& ubatch) {
        const size_t n = ubatch.items.size();
        for (size_t i = 0; i < n; i++) {
            const uint32_t cell = ubatch.groups[0].cells[i];
            const Row row{ubatch.positions[i * config_.n_pos], read_row(memory_->k(0), cell),
                          read_row(memory_->v(0), cell)};
            kept_error_ = std::max(kept_error_, error_of(row.k, part(k_, i, n)));
            kept_error_ = std::max(kept_error_, error_of(row.v, part(v_, i, n)));
            for (const SeqId seq : batch.seqs(ubatch.items[i]))
                lists_[value(seq)].push_back(row);
        }
    }

    double compare(const Batch& batch, const UbatchPlan& ubatch) const {
        const size_t n = ubatch.items.size();
        double most = 0;
        for (size_t i = 0; i < n; i++) {
            const Pos pos = ubatch.positions[i * config_.n_pos];
            std::vector<SeenRow> seen;
            for (const Row& row : lists_.at(value(batch.seqs(ubatch.items[i])[0]))) {
                if (config_.kind.sees(pos).contains(row.pos))
                    seen.push_back({row.pos, row.k, row.v});
            }
            for (size_t layer = 0; layer < out_.size(); layer++) {
                const auto expected = reference_attention(config_.layer, part(q_[layer], i, n), pos,
                                                          seen, config_.params);
                most = std::max(most, difference(part(out_[layer], i, n), expected));
            }
        }
        return most;
    }

    const RigConfig config_;
    std::unique_ptr<Memory> memory_;
    int gathers_ = 0;
    AttentionWorkspace workspace_;
    ggml_backend_ptr backend_;
    std::map<int, std::vector<Row>> lists_;
    std::vector<AttentionPlan> plans_;
    std::vector<std::vector<float>> q_, out_;  // of the ubatch, by layer, item by item
    std::vector<float> k_, v_;                 // the same, of the layer that keeps them
    double kept_error_ = 0;
    std::mt19937 random_{20};
};

}  // namespace cellar::testing
