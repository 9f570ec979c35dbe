#include "model/offload.h"

#include <fmt/format.h>
#include <ggml-backend.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "gguf/gguf_file.h"
#include "model/metadata.h"

namespace cellar {

namespace {

// What cannot be more than a helper of the CPU's (BLAS) holds no layers.
bool holds_layers(ggml_backend_dev_t device) {
    const enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    return type != GGML_BACKEND_DEVICE_TYPE_CPU && type != GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

std::vector<ggml_backend_dev_t> all_devices() {
    std::vector<ggml_backend_dev_t> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        if (holds_layers(ggml_backend_dev_get(i))) found.push_back(ggml_backend_dev_get(i));
    }
    return found;
}

Result<ggml_backend_dev_t> find_device(const std::string& name) {
    const std::vector<ggml_backend_dev_t> all = all_devices();
    if (all.empty()) {
        return fail(Code::kInvalidArgument,
                    "There is no device to offload layers to: ggml was built for none, or finds "
                    "none here.");
    }
    std::string names;
    for (ggml_backend_dev_t device : all) {
        if (name.empty() || name == ggml_backend_dev_name(device)) return device;
        names += (names.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(device));
    }
    return fail(Code::kInvalidArgument,
                fmt::format("There is no device '{}' here; there are: {}.", name, names));
}

bool parse_number(std::string_view text, uint32_t& number) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && stop == text.data() + text.size();
}

bool parse_layers(std::string_view text, Offload& offload) {
    uint32_t newest = std::numeric_limits<uint32_t>::max();
    if (text == "all" || parse_number(text, newest)) {
        offload.newest = newest;
        return true;
    }
    const size_t dash = text.find('-');
    return dash != std::string_view::npos && parse_number(text.substr(0, dash), offload.first) &&
           parse_number(text.substr(dash + 1), offload.last) && offload.first <= offload.last;
}

}  // namespace

std::vector<DeviceInfo> devices() {
    std::vector<DeviceInfo> infos;
    for (ggml_backend_dev_t device : all_devices()) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        infos.push_back(
            {ggml_backend_dev_name(device), ggml_backend_dev_description(device), free, total});
    }
    return infos;
}

Result<Offload> Offload::parse(std::string_view text) {
    const size_t at = text.find('@');
    const std::string_view layers = text.substr(0, at);
    Offload offload;
    if (at != std::string_view::npos) offload.device = text.substr(at + 1);
    const bool named = at == std::string_view::npos || !offload.device.empty();
    if (!named || !parse_layers(layers, offload)) {
        return fail(Code::kInvalidArgument,
                    fmt::format("'{}' names no layers: write all, a number N for the last N, or "
                                "A-B, and @ with a device's name behind it if you like",
                                text));
    }
    return offload;
}

Result<std::vector<ggml_backend_device*>> place_layers(const GgufFile& file,
                                                       const std::vector<Offload>& offloads) {
    std::vector<ggml_backend_dev_t> placed;
    if (offloads.empty()) return placed;
    const auto architecture = file.string("general.architecture");
    if (!architecture) return tl::unexpected(architecture.error());
    const auto n_layer = count_in(file, std::string(*architecture) + ".block_count", 1, kMaxLayers);
    if (!n_layer) return tl::unexpected(n_layer.error());
    placed.resize(*n_layer, nullptr);
    for (const Offload& offload : offloads) {
        if (offload.newest == 0u) continue;
        const auto device = find_device(offload.device);
        if (!device) return tl::unexpected(device.error());
        const uint32_t first =
            offload.newest ? *n_layer - std::min(*offload.newest, *n_layer) : offload.first;
        const uint32_t last = offload.newest ? *n_layer - 1 : offload.last;
        if (last >= *n_layer) {
            return fail(Code::kInvalidArgument,
                        fmt::format("{}: layers {} to {} cannot be offloaded: the model has {}, "
                                    "from 0.",
                                    file.path(), first, last, *n_layer));
        }
        for (uint32_t layer = first; layer <= last; layer++)
            placed[layer] = *device;
    }
    return placed;
}

}  // namespace cellar
