#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "attention/attend_params.h"
#include "attention/cascade.h"
#include "attention/schedule.h"
#include "memory/memory.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace cellar {

class AttentionWorkspace;

// How attention is computed: by our kernel, on the CPU, over the pools' pages in place; or in
// standard ggml operations over gathered rows, on any backend.
enum class AttentionPath { kKernel, kGraph };

struct AttentionOptions {
    AttentionPath path = AttentionPath::kKernel;
    bool flash = true;  // of kGraph: ggml_flash_attn_ext, otherwise a masked soft-max
    bool share = true;  // of kKernel: what sequences share is read once for all of them
};

// What one ubatch attends to in one group, in the form that its path computes from.
using AttentionPlan = std::variant<Cascade, Schedule>;

// Whether the keys and values that a layer attends to stand where the kernel can read them, in host
// memory.
bool kernel_reads(const Memory& memory, uint32_t layer);

// `group` is none that is recurrent, here and below.
AttentionPlan plan_attention(const Memory& memory, const UbatchPlan& ubatch, uint32_t group,
                             const AttentionOptions& options);

uint64_t attended_cells(const AttentionPlan& plan);  // over queries: the cells that each sees
uint64_t read_cells(const AttentionPlan& plan);      // distinct cells that any query sees

// What attention decides about the shape of a graph: equal shapes can share a built graph. The
// kernel's does not depend on how much is attended to.
struct AttentionShape {
    uint32_t n_tokens = 0;
    uint32_t n_streams = 1;  // of the graph path
    uint32_t length = 0;     // of the graph path
    bool in_order = true;    // of the graph path
    uint32_t n_turned = 0;   // some keys moved since they were encoded: queries turned for the
                             // kernel, 1 for the graph path

    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

AttentionShape shape_of(const AttentionPlan& plan);

// The shape of `n_tokens` queries over the whole pool that needs most memory.
AttentionShape widest_shape(const Memory& memory, uint32_t group, uint32_t n_tokens,
                            const AttentionOptions& options);

// Attention of one group in one graph: keeps K and V in the pool, then attends.
class Attention {
public:
    virtual ~Attention() = default;
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

    // Makes the input tensors in `ctx` (marked as inputs; allocated with the graph). `memory` and
    // `workspace` must outlive it; the graph path needs no workspace.
    static std::unique_ptr<Attention> create(ggml_context* ctx, const Memory& memory,
                                             uint32_t group, const AttentionShape& shape,
                                             const AttentionOptions& options,
                                             AttentionWorkspace* workspace);

    // Adds to the graph: keep this ubatch's k and v in the layer's pool, then attend.
    //   q [head_dim_k, n_head, n_tokens], k [head_dim_k, n_head_kv, n_tokens],
    //   v [head_dim_v, n_head_kv, n_tokens], all f32, rope applied.
    // A layer that shares (LayerKv::shares) gives null for k and v: nothing is kept, and q, turned
    // as its owner's keys are, attends to the owner's, to those of this ubatch as well. The owner
    // must have been added to the graph before; `params.rope` is the owner's. Returns [n_head *
    // head_dim_v, n_tokens].
    virtual ggml_tensor* attend(ggml_cgraph* graph, uint32_t layer, ggml_tensor* q, ggml_tensor* k,
                                ggml_tensor* v, const AttendParams& params) = 0;

    // Fills the inputs for one ubatch, whose plan has this shape; the graph must be allocated.
    // Before every run: running may overwrite inputs. The plan must live until the run has ended.
    virtual void set_inputs(const AttentionPlan& plan, const UbatchPlan& ubatch) = 0;

    // Makes room, outside of the graph, for this many tokens over the whole pool.
    virtual void reserve() {}

protected:
    Attention(ggml_context* ctx, const Memory& memory, uint32_t group, uint32_t n_tokens);

    // A layer's pools, as results of what wrote this ubatch's rows: whoever takes them as sources
    // reads afterwards.
    struct Kept {
        ggml_tensor* k = nullptr;
        ggml_tensor* v = nullptr;
    };

    ggml_tensor* input(ggml_tensor* tensor, const char* name) const;
    // Adds the writing of k and v to the graph; with null for both, finds what the owner wrote.
    Kept keep(ggml_cgraph* graph, uint32_t layer, ggml_tensor* k, ggml_tensor* v);
    void set_cells(const UbatchPlan& ubatch) const;

    ggml_context* const ctx_;
    const Memory& memory_;
    const uint32_t group_;

private:
    ggml_tensor* write(ggml_cgraph* graph, ggml_tensor* pool, ggml_tensor* values) const;

    std::vector<Kept> kept_;  // by layer; null: it has not attended in this graph, or keeps nothing
    ggml_tensor* cells_;      // i64 [n_tokens] rows that set_rows writes
};

}  // namespace cellar
