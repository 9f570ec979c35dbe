#pragma once

#include <string_view>
#include <vector>

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

// Has each layer keep its rows where `placed` (place_layers) puts its weights, and lists devices.
void note_devices(ModelInfo& info, const std::vector<ggml_backend_device*>& placed);

// Loads what `loader` was asked for into `memory`, and notes its size in `info`. Errors: as
// WeightsLoader::load.
Result<void> load_asked(WeightsLoader&& loader, const LoadOptions& options, Weights& memory,
                        ModelInfo& info);

}  // namespace cellar
