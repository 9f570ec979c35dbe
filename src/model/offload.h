#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

struct ggml_backend_device;

namespace cellar {

class GgufFile;

// Devices other than the CPU that ggml was built for and finds here.
struct DeviceInfo {
    std::string name;         // "CUDA0"
    std::string description;  // as its maker calls it
    uint64_t free_bytes = 0;  // of its memory; both 0 where the device does not say
    uint64_t total_bytes = 0;
};
std::vector<DeviceInfo> devices();

// Layers that a device holds and computes: their weights, and what a memory keeps for them. The
// rows that turn the last layer's outcome into logits are where the last layer is; token embeddings
// are on the CPU always.
struct Offload {
    // The last `newest` layers, or all if they are fewer; otherwise first .. last, both included.
    std::optional<uint32_t> newest;
    uint32_t first = 0;
    uint32_t last = 0;
    std::string device;  // a name among devices(); empty: the first of them

    // LAYERS[@DEVICE], where LAYERS is `all`, a number N (the last N) or A-B. Errors:
    // kInvalidArgument.
    static Result<Offload> parse(std::string_view text);
};

// The device of each of the layers of `file`'s model, null for the CPU; of several offloads that
// name a layer the last one counts. Empty if there are none. Errors: kInvalidArgument for layers
// that the model does not have and for a device that is not there, naming those that are;
// kBadFile if the file does not say how many layers there are.
Result<std::vector<ggml_backend_device*>> place_layers(const GgufFile& file,
                                                       const std::vector<Offload>& offloads);

}  // namespace cellar
