#pragma once

#include <cstdint>

#include "base/error.h"
#include "memory/memory.h"

namespace cellar {

// The kind of a group; full where none is given.
GroupKind kind_of(const MemoryConfig& config, uint32_t group);

// How many groups the layers that keep KV name: 0 .. n - 1, each by at least one of them. Errors:
// kInvalidArgument for groups that are not so, for layers that all keep nothing, and for a layer
// that shares what it cannot, which see LayerKv::shares.
Result<uint32_t> check_layers(const MemoryConfig& config);

}  // namespace cellar
