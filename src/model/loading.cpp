#include "model/loading.h"

#include <ggml-backend.h>

#include <algorithm>
#include <utility>

namespace cellar {

WeightsOptions weights_options(const LoadOptions& options) {
    return {.use_mmap = options.use_mmap, .repack = options.repack, .offloads = options.offloads};
}

Progress progress_of(const LoadOptions& options) {
    if (!options.progress) {
        return {};
    }
    return [report = options.progress](double fraction) {
        report(static_cast<float>(fraction));
        return true;
    };
}

ModelInfo info_of(const GgufFile& file, const LlamaConfig& config, std::string_view architecture) {
    ModelInfo info;
    info.architecture = architecture;
    if (auto name = file.find_string("general.name"); name && *name) {
        info.name = **name;
    }
    info.n_ctx_train = config.n_ctx_train;
    info.n_vocab = config.n_vocab;
    info.n_embd = config.n_embd;
    info.n_layer = config.n_layer;
    for (const uint32_t n_head_kv : config.n_head_kv) {
        info.layers.push_back({0, n_head_kv, config.head_dim, config.head_dim});
    }
    return info;
}

void note_devices(ModelInfo& info, const std::vector<ggml_backend_device*>& placed) {
    for (size_t layer = 0; layer < placed.size(); layer++) {
        ggml_backend_device* const device = placed[layer];
        if (device == nullptr) continue;
        info.layers[layer].buffer_type = ggml_backend_dev_buffer_type(device);
        if (std::find(info.devices.begin(), info.devices.end(), device) == info.devices.end()) {
            info.devices.push_back(device);
        }
    }
}

Result<void> load_asked(WeightsLoader&& loader, const LoadOptions& options, Weights& memory,
                        ModelInfo& info) {
    auto loaded = std::move(loader).load(progress_of(options));
    if (!loaded) {
        return pass(std::move(loaded));
    }
    memory = std::move(*loaded);
    info.weight_bytes = memory.bytes();
    return {};
}

}  // namespace cellar
