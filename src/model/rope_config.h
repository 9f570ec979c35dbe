#pragma once

#include <cstdint>
#include <string_view>

#include "attention/rope.h"
#include "base/error.h"
#include "gguf/gguf_file.h"
#include "model/rope_overrides.h"

namespace cellar {

struct RopeConfig {
    Rope rope;  // without `factors`: those are tensors
    RopeScaling scaling = RopeScaling::kLinear;
    // What rope's freq_scale, ext_factor and attn_factor come of.
    float factor = 1;     // how many times longer contexts became
    float magnitude = 1;  // of turned vectors, besides YaRN's
};

// What the keys `<architecture>.rope.*` say, with llama.cpp's defaults: base 10000, linear, factor
// 1 (0 means 1, too), original context = `n_ctx_train`. `head_dim` must be even, and a
// rope.dimension_ count must equal it. As in llama.cpp, the keys rope.scaling.yarn_* are not read:
// few architectures have them, and llama is none of these. Errors: kBadFile for numbers that make
// no sense, kUnsupported for an unknown type of scaling.
Result<RopeConfig> read_rope(const GgufFile& file, std::string_view architecture, uint32_t head_dim,
                             uint32_t n_ctx_train);

// What the caller wants instead. Errors, with nothing changed: kInvalidArgument as
// RopeOverrides::check, for a scale without scaling, for betas where nothing is blended, and for a
// beta_fast below beta_slow.
Result<void> override_rope(RopeConfig& config, const RopeOverrides& overrides);

}  // namespace cellar
