#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "attention/attention.h"
#include "attention/tile_work.h"

namespace cellar {

// Attention of one group by our kernel: two ggml custom operations a layer. The first computes sums
// for tiles of query rows against runs of the pool's rows, where they are; the second merges them.
// Where keys moved since they were encoded, queries are turned back by as much instead.
//
// What is attended to stands outside of the graph, so a built graph serves any amount of it.
class KernelAttention : public Attention {
public:
    KernelAttention(ggml_context* ctx, const Memory& memory, uint32_t group,
                    const AttentionShape& shape, AttentionWorkspace& workspace);

    ggml_tensor* attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q, ggml_tensor* k,
                        ggml_tensor* v, const AttendParams& params) override;

    // Allocates nothing once steps of this size were met.
    void set_inputs(const AttentionPlan& plan, const UbatchPlan& ubatch) override;

    void reserve() override;

private:
    // One layer's attention, as its operations know it.
    struct Layer {
        const KernelAttention* owner = nullptr;
        size_t work = 0;  // of work_
        float scale = 1.0f;
        float softcap = 0.0f;
        std::vector<float> slopes;  // ALiBi, [n_head]; empty: none
        std::vector<float> sinks;   // [n_head], as binary logarithms; empty: none
        std::vector<float> bias;    // as TileTask's, of all heads; empty: none
        int32_t reach = 0;
    };

    static void sum_tiles(ggml_tensor* out, int thread, int n_threads, void* layer);
    static void merge_tiles(ggml_tensor* out, int thread, int n_threads, void* layer);

    size_t work_of(const HeadShape& shape);
    static void set_biases(Layer& layer, uint32_t n_head, const AttendParams& params);
    void divide(const Cascade& cascade);
    void set_turned() const;
    void set_positions();
    ggml_tensor* with_turned(ggml_tensor* q, const Rope* rope);

    const AttentionShape shape_;
    AttentionWorkspace& workspace_;
    std::deque<Layer> layers_;    // the operations point at them
    std::vector<TileWork> work_;  // for each kind of heads that the group's layers have
    const Cascade* cascade_ = nullptr;
    bool placed_ = false;                   // some layer asks where its keys stand
    std::vector<Pos> positions_;            // of the cascade's columns, as encoded; if placed_
    ggml_tensor* turned_items_ = nullptr;   // i32 [n_turned] items whose queries are turned
    ggml_tensor* turned_deltas_ = nullptr;  // i32 [n_turned] by what; null where nothing turns
};

}  // namespace cellar
