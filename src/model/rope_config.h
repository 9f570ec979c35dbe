#pragma once

#include <cstdint>
#include <string_view>

#include "attention/rope.h"
#include "base/error.h"
#include "gguf/gguf_file.h"

namespace cellar {

// How a model was stretched beyond the context it was first trained on. Llama 3's stretching is
// kLinear or kNone here with factor 1: its file carries the tensor rope_freqs.weight instead.
enum class RopeScaling { kNone, kLinear, kYarn, kLongRope };

struct RopeConfig {
    Rope rope;  // without `factors`: those are tensors
    RopeScaling scaling = RopeScaling::kLinear;
};

// What the keys `<architecture>.rope.*` say, with llama.cpp's defaults: base 10000, linear, factor
// 1 (0 means 1, too), original context = `n_ctx_train`. `head_dim` must be even, and a
// rope.dimension_ count must equal it. As in llama.cpp, the keys rope.scaling.yarn_* are not read:
// few architectures have them, and llama is none of these. Errors: kBadFile for numbers that make
// no sense, kUnsupported for an unknown type of scaling.
Result<RopeConfig> read_rope(const GgufFile& file, std::string_view architecture, uint32_t head_dim,
                             uint32_t n_ctx_train);

}  // namespace cellar
