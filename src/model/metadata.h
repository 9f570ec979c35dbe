#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/gguf_file.h"

namespace cellar {

// Layers that a model may have: far beyond any (405B: 126).
constexpr uint32_t kMaxLayers = 1024;

// Numbers of a model's metadata with the range that makes sense for them. Outside it, of another
// type or (where required) missing: kBadFile, with the key, the value and the range.

Result<uint32_t> count_in(const GgufFile& file, std::string_view key, uint32_t low, uint32_t high);

Result<std::optional<uint32_t>> find_count_in(const GgufFile& file, std::string_view key,
                                              uint32_t low, uint32_t high);

// A value for each of `n` layers: an array of n, or a scalar for all.
Result<std::optional<std::vector<uint32_t>>> find_counts_in(const GgufFile& file,
                                                            std::string_view key, size_t n,
                                                            uint32_t low, uint32_t high);

// A finite number; the default if the key is absent.
Result<float> real_in(const GgufFile& file, std::string_view key, float low, float high,
                      float absent);

}  // namespace cellar
