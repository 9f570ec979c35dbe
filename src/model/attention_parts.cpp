#include "model/attention_parts.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <utility>

namespace cellar {

namespace {

Result<AttentionPath> path_of(const Memory& memory, uint32_t layer, AttentionChoice choice) {
    if (choice == AttentionChoice::kGraph) return AttentionPath::kGraph;
    if (kernel_reads(memory, layer)) return AttentionPath::kKernel;
    if (choice == AttentionChoice::kAuto) return AttentionPath::kGraph;
    return fail(Code::kUnsupported,
                fmt::format("The attention kernel reads host memory, but the keys and values of "
                            "layer {} are in {}.",
                            layer, ggml_backend_buffer_name(memory.k(layer)->buffer)));
}

}  // namespace

Result<AttentionParts> choose_attention(const Memory& memory, AttentionChoice choice,
                                        const AttentionOptions& options) {
    const std::vector<LayerKv>& layers = memory.config().layers;
    AttentionParts chosen;
    chosen.of_layer.resize(layers.size());
    for (uint32_t group = 0; group < memory.cells().n_groups(); group++) {
        if (memory.cells().kind(group).is_recurrent()) continue;
        std::optional<size_t> of_path[2];
        for (uint32_t layer = 0; layer < layers.size(); layer++) {
            if (layers[layer].group != group || layers[layer].keeps_none()) continue;
            const auto path = path_of(memory, layer, choice);
            if (!path) return tl::unexpected(path.error());
            auto& part = of_path[*path == AttentionPath::kGraph ? 1 : 0];
            if (!part) {
                part = chosen.parts.size();
                chosen.parts.push_back({group, options});
                chosen.parts.back().options.path = *path;
            }
            chosen.of_layer[layer] = part;
        }
    }
    return chosen;
}

}  // namespace cellar
