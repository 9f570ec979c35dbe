#pragma once

#include <ggml.h>

#include <cstdint>

#include "cells/plan.h"
#include "memory/memory.h"

namespace cellar {

// Of the runs of a step that some layers keep states of: as many items each.
struct RunShape {
    uint32_t n_runs = 0;    // 0: no layer keeps states
    uint32_t n_states = 0;  // the newest states of each run that are kept; at most its items

    friend bool operator==(const RunShape&, const RunShape&) = default;
};

// The states of one recurrent group in one graph: where runs go on from, and what they leave.
// A layer's state is two vectors, `kFirst` in its k, `kSecond` in its v.
class Recurrence {
public:
    enum class Part { kFirst, kSecond };

    // Makes the input tensors in `ctx`, as they are asked for. `memory` must outlive it.
    Recurrence(ggml_context* ctx, ggml_cgraph* graph, const Memory& memory, uint32_t group,
               uint32_t n_tokens, RunShape shape);

    uint32_t n_runs() const { return shape_.n_runs; }
    uint32_t n_states() const { return shape_.n_states; }
    uint32_t n_items() const { return n_items_; }  // of each run

    // What each run goes on from: f32 [width, n_runs]; zero for a sequence that begins.
    ggml_tensor* state(uint32_t layer, Part part);

    // Keeps what each run has come to after its item n_items - n_states + `nth`: f32
    // [width, n_runs], its rows contiguous.
    void keep(uint32_t layer, Part part, uint32_t nth, ggml_tensor* states);

    // Causal convolution of each run's items, and the state that it needs, in `part` of the layer:
    // the last d_conv - 1 items before. x [n, n_tokens], kernel [d_conv, n] → [n, n_tokens]. Keeps
    // the new states.
    ggml_tensor* convolve(uint32_t layer, Part part, ggml_tensor* x, ggml_tensor* kernel);

    // What a selective scan reads: for each of n channels and each item i, with h its d_state
    // numbers, h = exp(d a) h + d b x_i where d = softplus(dt_i), and y_i = c·h.
    struct Scan {
        ggml_tensor* x;   // [n, n_tokens]
        ggml_tensor* dt;  // [n, n_tokens]
        ggml_tensor* a;   // [d_state, n]
        ggml_tensor* b;   // [d_state, n_tokens]; rows may be apart, as those of c
        ggml_tensor* c;   // [d_state, n_tokens]
    };

    // y [n, n_tokens]. The state, d_state numbers a channel, is in `part`. Keeps the new states.
    ggml_tensor* scan(uint32_t layer, Part part, const Scan& in);

    // Fills the inputs; the graph must be allocated.
    void set_inputs(const UbatchGroup& plan) const;

private:
    ggml_tensor* pool(uint32_t layer, Part part) const;
    ggml_tensor* input(ggml_tensor*& tensor, ggml_type type, uint32_t n, const char* name);
    ggml_tensor* scan_piece(const Scan& in, ggml_tensor* state, uint32_t first, uint32_t count);

    ggml_context* const ctx_;
    ggml_cgraph* const graph_;
    const Memory& memory_;
    const uint32_t group_;
    const RunShape shape_;
    const uint32_t n_items_;
    ggml_tensor* sources_ = nullptr;  // i32 [n_runs]
    ggml_tensor* rows_ = nullptr;  // i64 [n_runs, n_states]: the n-th states of all runs together
    ggml_tensor* numbers_ = nullptr;  // i32 [n_runs]: 0, 1, ...
};

}  // namespace cellar
