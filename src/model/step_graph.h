#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/rope.h"
#include "attention/workspace.h"
#include "cells/batch.h"
#include "cells/plan.h"
#include "memory/memory.h"
#include "model/attention_parts.h"
#include "model/linear.h"
#include "model/recurrence.h"

namespace cellar {

// What decides a step's graph: steps of equal shape share one.
struct StepShape {
    uint32_t n_tokens = 0;
    uint32_t n_outputs = 0;                 // rows of logits
    std::vector<AttentionShape> attention;  // of each AttentionPart
    RunShape runs;                          // if any group is recurrent

    friend bool operator==(const StepShape&, const StepShape&) = default;
};

// The graph of one step: a model adds its operations, then every step of this shape sets the inputs
// and runs it. A tensor's shape is written innermost first, as ggml's `ne`.
class StepGraph {
public:
    // `memory`, `parts` and `workspace` must outlive it.
    StepGraph(const Memory& memory, StepShape shape, const AttentionParts& parts,
              AttentionWorkspace& workspace);

    // -- For models ----------------------------------------------------------------------------

    ggml_context* ctx() const { return ctx_.get(); }
    uint32_t n_ctx() const { return memory_.config().n_cells; }  // that a sequence can grow to

    // Rows of `table` [n_embd, n_vocab] for the step's tokens: [n_embd, n_tokens].
    ggml_tensor* embed(ggml_tensor* table);

    ggml_tensor* rms_norm(ggml_tensor* x, ggml_tensor* weight, float eps);

    // scale * (weight x) + bias.
    ggml_tensor* linear(const Linear& weights, ggml_tensor* x);

    // x [n_head * head_dim, n_tokens] as [head_dim, n_head, n_tokens].
    ggml_tensor* heads(ggml_tensor* x, uint32_t n_head);

    // Where the step's tokens stand: i32 [n_tokens * n_pos], a component at a time.
    ggml_tensor* positions();

    // x [head_dim, n_head, n_tokens], turned by the step's positions.
    ggml_tensor* rope(ggml_tensor* x, const Rope& rope);

    // Keeps k and v in the layer's pool and attends, as Attention::attend; null for both where the
    // layer shares the KV of an earlier one, which must have attended before. Not for a layer that
    // keeps none.
    ggml_tensor* attend(uint32_t layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                        const AttendParams& params);

    // The states of a layer in a recurrent group, which attends to nothing.
    Recurrence& recurrence(uint32_t layer);

    // down(f(gate(x)) * up(x)), where each of the three is scale * (weight x + bias), and `op`
    // names f: GGML_GLU_OP_SWIGLU (silu) or GGML_GLU_OP_GEGLU (gelu).
    ggml_tensor* glu(ggml_glu_op op, const Linear& gate, const Linear& up, const Linear& down,
                     ggml_tensor* x);

    // Leaves of a and b [n, n_tokens] the rows that logits are wanted of, [n, n_outputs]; false if
    // none are wanted. For the last layer, whose other rows nobody reads once what it keeps is
    // kept.
    bool keep_outputs(ggml_tensor*& a, ggml_tensor*& b);

    // -- For the stepper -----------------------------------------------------------------------

    // Ends building: `logits` [n_vocab, n_outputs] or null, as Model::build returned it.
    void finish(ggml_tensor* logits);

    // Fills all inputs; the graph must be allocated. `plans`: one for each part, of this shape;
    // they must live until the run has ended.
    void set_inputs(const Batch& batch, const UbatchPlan& ubatch, std::span<const uint32_t> rows,
                    std::span<const AttentionPlan> plans);

    // Makes room outside of the graph for the largest step of this shape.
    void reserve();

    const StepShape& shape() const { return shape_; }
    ggml_cgraph* graph() const { return graph_; }
    ggml_tensor* logits() const { return logits_; }

private:
    ggml_tensor* input(ggml_tensor* tensor, const char* name);
    ggml_tensor* outputs(ggml_tensor* x);
    ggml_tensor* linear_in_ffn(const Linear& weights, ggml_tensor* x);

    const Memory& memory_;
    const StepShape shape_;
    const AttentionParts& parts_;
    ggml_context_ptr ctx_;
    ggml_cgraph* graph_ = nullptr;
    std::vector<std::unique_ptr<Attention>> attention_;    // by part
    std::vector<std::unique_ptr<Recurrence>> recurrence_;  // [n_groups]; null: attends
    ggml_tensor* tokens_ = nullptr;                        // i32 [n_tokens]
    ggml_tensor* positions_ = nullptr;  // i32 [n_tokens * n_pos], a component at a time
    ggml_tensor* rows_ = nullptr;       // i32 [n_outputs]; null when it is all rows or none
    ggml_tensor* logits_ = nullptr;
};

}  // namespace cellar
