#pragma once

#include <optional>
#include <string_view>

namespace cellar {

// How keys or values are stored. The names are those of ggml.
enum class KvType { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kIq4Nl };

// "f16" and the like; nothing for any other text.
std::optional<KvType> parse_kv_type(std::string_view name);
std::string_view name(KvType type);

// All names, for messages: "f32, f16, …".
std::string_view kv_type_names();

}  // namespace cellar
