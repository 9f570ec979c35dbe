// The head's bytes are those of docs/state-format.md, whatever becomes of our enumerations.

#include "state/head.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace cellar::testing {
namespace {

// Of a head with one group and nothing else: name, three digests, adapters, components, groups.
constexpr size_t kGroupAt = 4 + 3 * 32 + 4 + 4 + 4;

uint32_t number_at(std::span<const std::byte> bytes, size_t at) {
    uint32_t number = 0;
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
}

StateHead head_of(GroupKind kind, KvType type_k = KvType::kF32) {
    StateHead head;
    StateHead::Group& group = head.groups.emplace_back();
    group.kind = kind;
    group.type_k = type_k;
    group.type_v = KvType::kF32;
    group.saved = true;
    return head;
}

TEST(StateHeadTest, KindsHaveTheFormatsNumbers) {
    const std::pair<GroupKind, uint32_t> kinds[] = {
        {GroupKind::full(), 0},       {GroupKind::sliding(7), 1},  {GroupKind::chunked(7), 2},
        {GroupKind::symmetric(7), 3}, {GroupKind::recurrent(), 4}, {GroupKind::whole(), 5}};
    for (const auto& [kind, number] : kinds) {
        const std::vector<std::byte> bytes = encode_head(head_of(kind));
        EXPECT_EQ(number_at(bytes, kGroupAt), number);
        EXPECT_EQ(number_at(bytes, kGroupAt + 4), kind.window);
        const auto head = decode_head(bytes);
        ASSERT_TRUE(head) << head.error().message;
        EXPECT_EQ(head->groups[0].kind, kind);
    }
}

TEST(StateHeadTest, TypesHaveTheFormatsNumbers) {
    const std::pair<KvType, uint32_t> types[] = {
        {KvType::kF32, 0},  {KvType::kF16, 1},  {KvType::kBf16, 2},
        {KvType::kQ8_0, 3}, {KvType::kQ4_0, 4}, {KvType::kQ4_1, 5},
        {KvType::kQ5_0, 6}, {KvType::kQ5_1, 7}, {KvType::kIq4Nl, 8}};
    for (const auto& [type, number] : types) {
        const std::vector<std::byte> bytes = encode_head(head_of(GroupKind::full(), type));
        EXPECT_EQ(number_at(bytes, kGroupAt + 8), number);
        EXPECT_EQ(number_at(bytes, kGroupAt + 12), 0);
        const auto head = decode_head(bytes);
        ASSERT_TRUE(head) << head.error().message;
        EXPECT_EQ(head->groups[0].type_k, type);
    }
}

TEST(StateHeadTest, NumbersThatNothingHasAreDamage) {
    const std::vector<std::byte> good = encode_head(head_of(GroupKind::full()));
    const std::pair<size_t, uint32_t> bad[] = {{0, 6}, {8, 9}, {12, 9}, {16, 2}};
    for (const auto& [at, number] : bad) {
        std::vector<std::byte> bytes = good;
        std::memcpy(bytes.data() + kGroupAt + at, &number, sizeof number);
        const auto head = decode_head(bytes);
        ASSERT_FALSE(head) << at;
        EXPECT_EQ(head.error().code, Code::kBadFile);
    }
}

}  // namespace
}  // namespace cellar::testing
