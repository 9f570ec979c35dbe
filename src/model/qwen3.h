#pragma once

#include <memory>

#include "base/error.h"
#include "model/model.h"

namespace cellar {

// Architecture `qwen3`: `llama` with a norm on each head of queries and keys, and halves of a head
// turned against each other.
// Errors: as LlamaModel::load's.
Result<std::unique_ptr<Model>> load_qwen3(const GgufFile& file, const LoadOptions& options);

}  // namespace cellar
