#pragma once

#include <string_view>

#include "gguf/gguf_file.h"
#include "model/llama_config.h"
#include "model/model.h"
#include "model/weights.h"

namespace cellar {

// What the architectures do alike when they load a model.

WeightsOptions weights_options(const LoadOptions& options);
Progress progress_of(const LoadOptions& options);

// All but `weight_bytes`, with every layer in group 0.
ModelInfo info_of(const GgufFile& file, const LlamaConfig& config, std::string_view architecture);

// Loads what `loader` was asked for into `memory`, and notes its size in `info`. Errors: as
// WeightsLoader::load.
Result<void> load_asked(WeightsLoader&& loader, const LoadOptions& options, Weights& memory,
                        ModelInfo& info);

}  // namespace cellar
