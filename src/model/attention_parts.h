#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/attention.h"
#include "base/error.h"
#include "memory/memory.h"

namespace cellar {

// kAuto: the kernel for layers in host memory, the graph path for the others.
enum class AttentionChoice { kAuto, kKernel, kGraph };

// Layers of one group that attend in the same way: all of them, unless some of the group's layers
// are where the kernel cannot read them.
struct AttentionPart {
    uint32_t group = 0;
    AttentionOptions options;
};

struct AttentionParts {
    std::vector<AttentionPart> parts;             // in the order of groups
    std::vector<std::optional<size_t>> of_layer;  // index into parts; none: it attends to nothing

    // Whether it is the first part of its group.
    bool leads(size_t part) const {
        return part == 0 || parts[part - 1].group != parts[part].group;
    }
};

// `options`: for each part, but for the path, which `choice` decides. Errors: kUnsupported for the
// kernel on memory that is not the host's.
Result<AttentionParts> choose_attention(const Memory& memory, AttentionChoice choice,
                                        const AttentionOptions& options);

}  // namespace cellar
