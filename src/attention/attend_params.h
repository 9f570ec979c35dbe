#pragma once

namespace cellar {

struct Rope;

// How a layer's scores are made: softmax over visible keys of
//   softcap * tanh(scale * q·k / softcap) - slope(head) * distance.
struct AttendParams {
    float scale = 1.0f;           // of q·k
    float max_alibi_bias = 0.0f;  // of the steepest head's slope, as in ggml; 0: no such bias
    float softcap = 0.0f;         // 0: none
    // Turns keys whose positions moved since they were encoded: NORM or NEOX, one position
    // component. Must live while the graph is built. Null: positions turn nothing.
    const Rope* rope = nullptr;
};

}  // namespace cellar
