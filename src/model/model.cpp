#include "model/model.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "gguf/gguf_file.h"
#include "gguf/printable.h"
#include "model/gemma3.h"
#include "model/lfm2.h"
#include "model/llama.h"
#include "model/loading.h"
#include "model/mamba.h"
#include "model/mpt.h"
#include "model/qwen2.h"
#include "model/qwen3.h"

namespace cellar {

namespace {

struct Architecture {
    std::string_view name;
    Result<std::unique_ptr<Model>> (*load)(const GgufFile&, const LoadOptions&);
};

constexpr Architecture kArchitectures[] = {
    {"llama", LlamaModel::load}, {"gemma3", Gemma3Model::load}, {"mpt", MptModel::load},
    {"mamba", MambaModel::load}, {"lfm2", Lfm2Model::load},     {"qwen2", load_qwen2},
    {"qwen3", load_qwen3},
};

std::string architecture_names() {
    std::string names;
    for (const Architecture& architecture : kArchitectures) {
        names += names.empty() ? "" : ", ";
        names += architecture.name;
    }
    return names;
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const LoadOptions& options) {
    auto name = file.string("general.architecture");
    if (!name) {
        return pass(std::move(name));
    }
    for (const Architecture& architecture : kArchitectures) {
        if (architecture.name == *name) {
            const auto placed = place_layers(file, options.offloads);
            if (!placed) {
                return tl::unexpected(placed.error());
            }
            auto model = architecture.load(file, options);
            if (model) note_devices((*model)->info_, *placed);
            return model;
        }
    }
    return fail(Code::kUnsupported,
                fmt::format("{}: models of architecture '{}' cannot be run; these can: {}.",
                            file.path(), printable(*name), architecture_names()));
}

}  // namespace cellar
