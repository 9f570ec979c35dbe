#include "memory/kv_type.h"

#include <array>

#include "memory/ggml_kv_type.h"

namespace cellar {
namespace {

struct Entry {
    KvType type;
    std::string_view name;
    ggml_type stored;
};

constexpr std::array kEntries{
    Entry{KvType::kF32, "f32", GGML_TYPE_F32},         Entry{KvType::kF16, "f16", GGML_TYPE_F16},
    Entry{KvType::kBf16, "bf16", GGML_TYPE_BF16},      Entry{KvType::kQ8_0, "q8_0", GGML_TYPE_Q8_0},
    Entry{KvType::kQ4_0, "q4_0", GGML_TYPE_Q4_0},      Entry{KvType::kQ4_1, "q4_1", GGML_TYPE_Q4_1},
    Entry{KvType::kQ5_0, "q5_0", GGML_TYPE_Q5_0},      Entry{KvType::kQ5_1, "q5_1", GGML_TYPE_Q5_1},
    Entry{KvType::kIq4Nl, "iq4_nl", GGML_TYPE_IQ4_NL},
};

constexpr const Entry& entry(KvType type) {
    return kEntries[static_cast<size_t>(type)];
}

constexpr bool in_order_of_the_enum() {
    for (size_t i = 0; i < kEntries.size(); i++) {
        if (static_cast<size_t>(kEntries[i].type) != i) return false;
    }
    return true;
}
static_assert(in_order_of_the_enum());

}  // namespace

std::optional<KvType> parse_kv_type(std::string_view name) {
    for (const Entry& e : kEntries) {
        if (e.name == name) return e.type;
    }
    return std::nullopt;
}

std::string_view name(KvType type) {
    return entry(type).name;
}

std::string_view kv_type_names() {
    return "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl";
}

ggml_type ggml_type_of(KvType type) {
    return entry(type).stored;
}

}  // namespace cellar
