#include "model/qwen2.h"

#include <ggml.h>

#include "model/llama.h"

namespace cellar {

Result<std::unique_ptr<Model>> load_qwen2(const GgufFile& file, const LoadOptions& options) {
    return LlamaModel::load_like(file, options, {"qwen2", GGML_ROPE_TYPE_NEOX, false});
}

}  // namespace cellar
