#include "model/qwen3.h"

#include <ggml.h>

#include "model/llama.h"

namespace cellar {

Result<std::unique_ptr<Model>> load_qwen3(const GgufFile& file, const LoadOptions& options) {
    return LlamaModel::load_like(file, options, {"qwen3", GGML_ROPE_TYPE_NEOX, true});
}

}  // namespace cellar
