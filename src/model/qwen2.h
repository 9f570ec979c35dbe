#pragma once

#include <memory>

#include "base/error.h"
#include "model/model.h"

namespace cellar {

// Architecture `qwen2`: `llama` with biases on queries, keys and values, and halves of a head
// turned against each other. Errors: as LlamaModel::load's.
Result<std::unique_ptr<Model>> load_qwen2(const GgufFile& file, const LoadOptions& options);

}  // namespace cellar
