#include "engine/decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "engine/decoding.h"

namespace cellar {
namespace {

using testing::Decoding;
using testing::max_difference;
using testing::Row;
using testing::tiny_llama;

DecoderOptions small_options() {
    DecoderOptions options;
    options.n_cells = 256;
    options.page_size = 8;
    options.max_ubatch = 16;
    return options;
}

TEST(DecoderTest, TokenOutsideTheVocabularyChangesNothing) {
    Decoding decoding(tiny_llama(), small_options());
    Batch batch;
    batch.add(5, SeqId{0});
    for (const Token bad : {128, -1, -7}) {
        batch.add(bad, SeqId{0});
        auto done = decoding.decoder().decode(batch, [](size_t, std::span<const float>) {});
        ASSERT_FALSE(done);
        EXPECT_EQ(done.error().code, Code::kInvalidArgument);
        EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), -1);
    }
}

TEST(DecoderTest, BatchWithoutRoomChangesNothing) {
    Decoding decoding(tiny_llama(), small_options());
    const Row before = decoding.append(SeqId{0}, std::vector<Token>(200, 3));
    Batch batch;
    for (int i = 0; i < 57; i++) {
        batch.add(3, SeqId{0});
    }
    auto done = decoding.decoder().decode(batch, [](size_t, std::span<const float>) {});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kNoRoom);
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), 199);
}

TEST(DecoderTest, LogitsComeOnlyForItemsThatWantThem) {
    Decoding decoding(tiny_llama(), small_options());
    Batch all;
    Batch some;
    for (int i = 0; i < 40; i++) {
        all.add(i, SeqId{0}, kNextPos, true);
        some.add(i, SeqId{1}, kNextPos, i == 0 || i == 17 || i == 18 || i == 39);
    }
    const auto of_all = decoding.decode(all);
    const auto of_some = decoding.decode(some);
    ASSERT_EQ(of_all.size(), 40U);
    ASSERT_EQ(of_some.size(), 4U);
    for (const auto& [item, row] : of_some) {
        EXPECT_LE(max_difference(row, of_all.at(item)), 5e-3f) << item;
    }
}

TEST(DecoderTest, BatchWithoutLogitsIsKeptAllTheSame) {
    Decoding decoding(tiny_llama(), small_options());
    Batch batch;
    for (int i = 0; i < 40; i++) {
        batch.add(i, SeqId{0});
    }
    EXPECT_TRUE(decoding.decode(batch).empty());
    const Row row = decoding.append(SeqId{0}, {77});
    Decoding fresh(tiny_llama(), small_options());
    std::vector<Token> tokens;
    for (int i = 0; i < 40; i++) {
        tokens.push_back(i);
    }
    tokens.push_back(77);
    EXPECT_LE(max_difference(row, fresh.append(SeqId{0}, tokens)), 5e-3f);
}

TEST(DecoderTest, OneCellOfTwoSequencesServesBoth) {
    Decoding decoding(tiny_llama(), small_options());
    Batch shared;
    for (int i = 0; i < 20; i++) {
        shared.add(i, std::array{SeqId{0}, SeqId{1}});
    }
    decoding.decode(shared);
    const Row one = decoding.append(SeqId{0}, {50, 51});
    const Row two = decoding.append(SeqId{1}, {50, 51});
    EXPECT_LE(max_difference(one, two), 5e-3f);
}

}  // namespace
}  // namespace cellar
