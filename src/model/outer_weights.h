#pragma once

#include "model/linear.h"
#include "model/llama_config.h"
#include "model/weights.h"

namespace cellar {

// What stands before and behind a model's layers.
struct OuterWeights {
    ggml_tensor* token_embd = nullptr;   // [n_embd, n_vocab], for look-ups
    ggml_tensor* output_norm = nullptr;  // [n_embd]
    Linear output;                       // [n_embd, n_vocab]; of tied models the same numbers
    bool tied = false;                   // the file has no output.weight
};

// Asks for them, and for a bias of the output if the file has one. `norm` names the norm before the
// output.
OuterWeights ask_outer(WeightsLoader& loader, const LlamaConfig& config,
                       const char* norm = "output_norm.weight");

}  // namespace cellar
