#pragma once

#include "attention/relative_buckets.h"

struct ggml_tensor;

namespace cellar {

struct Rope;

// How a layer's scores are made: softmax over visible keys of
//   softcap * tanh(scale * q·k / softcap) - slope(head) * distance + bias(head, bucket(distance)).
struct AttendParams {
    float scale = 1.0f;           // of q·k
    float max_alibi_bias = 0.0f;  // of the steepest head's slope, as in ggml; 0: no such bias
    float softcap = 0.0f;         // 0: none
    // A weight without a value, as the exponent of a further key: f32 [n_head]; null: none. Both
    // tensors below stand in host memory and keep their values.
    ggml_tensor* sinks = nullptr;
    // What is added to each head's scores by distance (T5): f32 [n_head, n_buckets]; null: none.
    ggml_tensor* bias = nullptr;
    RelativeBuckets buckets = {};  // of `bias`
    // Turns keys whose positions moved since they were encoded: NORM or NEOX, one position
    // component. Must live while the graph is built. Null: positions turn nothing.
    const Rope* rope = nullptr;
};

}  // namespace cellar
