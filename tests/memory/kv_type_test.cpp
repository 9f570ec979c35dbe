#include "memory/kv_type.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include "memory/ggml_kv_type.h"

namespace cellar {
namespace {

constexpr KvType kAll[] = {KvType::kF32,  KvType::kF16,  KvType::kBf16,
                           KvType::kQ8_0, KvType::kQ4_0, KvType::kQ4_1,
                           KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl};

TEST(KvTypeTest, NamesAreThoseOfGgml) {
    for (const KvType type : kAll)
        EXPECT_EQ(name(type), ggml_type_name(ggml_type_of(type)));
}

TEST(KvTypeTest, ParsesItsOwnNames) {
    for (const KvType type : kAll)
        EXPECT_EQ(parse_kv_type(name(type)), type);
}

TEST(KvTypeTest, ParsesNothingElse) {
    for (const char* text : {"", "F16", "f16 ", "q4_k", "int8"}) {
        EXPECT_EQ(parse_kv_type(text), std::nullopt) << text;
    }
}

TEST(KvTypeTest, ListsEveryName) {
    for (const KvType type : kAll) {
        EXPECT_NE(kv_type_names().find(name(type)), std::string_view::npos) << name(type);
    }
}

}  // namespace
}  // namespace cellar
