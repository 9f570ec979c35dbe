#include "model/outer_weights.h"

#include <ggml.h>

namespace cellar {

OuterWeights ask_outer(WeightsLoader& loader, const LlamaConfig& config, const char* norm) {
    const int64_t n_embd = config.n_embd;
    const int64_t n_vocab = config.n_vocab;
    OuterWeights outer;
    outer.token_embd = loader.require("token_embd.weight", {n_embd, n_vocab}, Use::kGetRows);
    outer.output_norm = loader.require(norm, {n_embd}, Use::kMul);
    outer.tied = !loader.has("output.weight");
    const char* output = outer.tied ? "token_embd.weight" : "output.weight";
    outer.output.weight = loader.require(output, {n_embd, n_vocab}, Use::kMulMat);
    outer.output.bias = loader.find("output.bias", {n_vocab}, Use::kAdd);
    // llama.cpp applies this one to nvfp4 only, where it is half of the format.
    if (outer.output.weight != nullptr && outer.output.weight->type == GGML_TYPE_NVFP4)
        outer.output.scale = loader.find("output.scale", {1}, Use::kMul);
    return outer;
}

}  // namespace cellar
