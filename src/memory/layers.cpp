#include "memory/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cellar {
namespace {

tl::unexpected<Error> refused(uint32_t layer, uint32_t owner, const std::string& why) {
    return fail(Code::kInvalidArgument,
                fmt::format("layer {} cannot share the keys and values of layer {}: {}", layer,
                            owner, why));
}

std::string heads_of(const LayerKv& layer) {
    return fmt::format("{} heads of {} keys and {} values", layer.n_head_kv, layer.head_dim_k,
                       layer.head_dim_v);
}

bool same_heads(const LayerKv& a, const LayerKv& b) {
    return a.n_head_kv == b.n_head_kv && a.head_dim_k == b.head_dim_k &&
           a.head_dim_v == b.head_dim_v;
}

Result<void> check_shared(const MemoryConfig& config, uint32_t index, uint32_t owner) {
    if (owner >= index) return refused(index, owner, "it is no earlier layer");
    const LayerKv& layer = config.layers[index];
    const LayerKv& kept = config.layers[owner];
    if (kept.shares) {
        return refused(index, owner,
                       fmt::format("it keeps none and shares those of layer {}", *kept.shares));
    }
    if (!kept.keeps()) return refused(index, owner, "it keeps none");
    if (layer.group != kept.group) {
        return refused(index, owner,
                       fmt::format("they are of groups {} and {}", layer.group, kept.group));
    }
    if (kind_of(config, kept.group).is_recurrent()) {
        return refused(index, owner,
                       fmt::format("group {} is recurrent and keeps states", kept.group));
    }
    if (!same_heads(layer, kept)) {
        return refused(index, owner,
                       fmt::format("it has {}, not {}", heads_of(kept), heads_of(layer)));
    }
    return {};
}

Result<uint32_t> count_groups(const std::vector<LayerKv>& layers) {
    std::vector<uint32_t> groups;
    for (const LayerKv& layer : layers) {
        if (layer.keeps()) groups.push_back(layer.group);
    }
    if (groups.empty()) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a memory needs at least one layer that keeps keys and values, "
                                "but none of {} does",
                                layers.size()));
    }
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    for (uint32_t i = 0; i < groups.size(); i++) {
        if (groups[i] != i) {
            return fail(Code::kInvalidArgument,
                        fmt::format("group {} has no layer, but group {} has", i, groups[i]));
        }
    }
    return static_cast<uint32_t>(groups.size());
}

}  // namespace

GroupKind kind_of(const MemoryConfig& config, uint32_t group) {
    return group < config.kinds.size() ? config.kinds[group] : GroupKind::full();
}

Result<uint32_t> check_layers(const MemoryConfig& config) {
    for (uint32_t i = 0; i < config.layers.size(); i++) {
        const auto owner = config.layers[i].shares;
        if (!owner) continue;
        if (auto ok = check_shared(config, i, *owner); !ok) return pass(std::move(ok));
    }
    return count_groups(config.layers);
}

}  // namespace cellar
