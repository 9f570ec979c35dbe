#include "text/vocab.h"

#include <gtest/gtest.h>

#include <functional>

namespace cellar {
namespace {

VocabData sound() {
    VocabData data;
    data.model = "gpt2";
    data.texts = {"<s>", "a", "b", "<|im_end|>", "</s>", ""};
    data.kinds = {3, 1, 1, 4, 1, 5};
    data.roles.bos = 0;
    return data;
}

TEST(Vocab, KnowsItsTokens) {
    const auto vocab = Vocab::create(sound());
    ASSERT_TRUE(vocab) << vocab.error().message;
    EXPECT_EQ(vocab->size(), 6);
    EXPECT_EQ(vocab->text(1), "a");
    EXPECT_EQ(vocab->find("b"), 2);
    EXPECT_EQ(vocab->find("c"), std::nullopt);
    EXPECT_EQ(vocab->find(""), std::nullopt);
    EXPECT_EQ(vocab->bos(), 0);
    EXPECT_EQ(vocab->eos(), std::nullopt);
    EXPECT_TRUE(vocab->is_control(0));
    EXPECT_FALSE(vocab->is_control(1));
    EXPECT_FALSE(vocab->contains(-1));
    EXPECT_FALSE(vocab->contains(6));
}

TEST(Vocab, IsAllNormalWithoutTypes) {
    VocabData data = sound();
    data.kinds.clear();
    const auto vocab = Vocab::create(std::move(data));
    ASSERT_TRUE(vocab);
    EXPECT_EQ(vocab->kind(0), TokenKind::kNormal);
}

TEST(Vocab, SurvivesBeingMoved) {
    auto made = Vocab::create(sound());
    ASSERT_TRUE(made);
    const Vocab vocab = std::move(*made);
    EXPECT_EQ(vocab.find("<|im_end|>"), 3);
}

TEST(Vocab, FindsEndsByIdAndByName) {
    VocabData data = sound();
    data.roles.eos = 2;
    const auto vocab = Vocab::create(std::move(data));
    ASSERT_TRUE(vocab);
    EXPECT_TRUE(vocab->is_end(2));   // the file says so
    EXPECT_TRUE(vocab->is_end(3));   // its name says so
    EXPECT_FALSE(vocab->is_end(4));  // may be an HTML tag: it is not a control token here
    EXPECT_FALSE(vocab->is_end(1));
    EXPECT_FALSE(vocab->is_end(-1));
}

// Otherwise a user could type it: user-defined tokens are matched in every text.
TEST(Vocab, MakesObviousEndsControlTokens) {
    const auto vocab = Vocab::create(sound());
    ASSERT_TRUE(vocab);
    EXPECT_TRUE(vocab->is_control(3));
}

TEST(Vocab, DoesNotEndAtTheMessagesOfHarmony) {
    VocabData data;
    data.texts = {"<|end|>", "<|return|>", "<|call|>"};
    const auto vocab = Vocab::create(std::move(data));
    ASSERT_TRUE(vocab);
    EXPECT_FALSE(vocab->is_end(0));
    EXPECT_TRUE(vocab->is_end(1));
    EXPECT_TRUE(vocab->is_end(2));
}

struct HostileCase {
    const char* name;
    std::function<void(VocabData&)> damage;
    const char* message;
};

class HostileVocabTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileVocabTest, IsRefusedInOneSentence) {
    VocabData data = sound();
    GetParam().damage(data);
    const auto vocab = Vocab::create(std::move(data));
    ASSERT_FALSE(vocab);
    EXPECT_EQ(vocab.error().code, Code::kBadFile);
    EXPECT_EQ(vocab.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Damage, HostileVocabTest,
    ::testing::Values(
        HostileCase{"NoTokens", [](VocabData& data) { data.texts.clear(); },
                    "the vocabulary has no tokens"},
        HostileCase{"TooFewTypes", [](VocabData& data) { data.kinds.pop_back(); },
                    "the vocabulary has 5 token types for 6 tokens"},
        HostileCase{"TooManyScores", [](VocabData& data) { data.scores.resize(7); },
                    "the vocabulary has 7 scores for 6 tokens"},
        HostileCase{"UnknownType", [](VocabData& data) { data.kinds[2] = 7; },
                    "token 2 is of type 7, which does not exist"},
        HostileCase{"NegativeType", [](VocabData& data) { data.kinds[0] = -1; },
                    "token 0 is of type -1, which does not exist"},
        HostileCase{"SameText", [](VocabData& data) { data.texts[4] = "a"; },
                    "tokens 1 and 4 have the same text"},
        HostileCase{"LongText", [](VocabData& data) { data.texts[1].assign(16385, 'x'); },
                    "token 1 is 16385 bytes long, where at most 16384 are allowed"},
        HostileCase{"BosOutOfRange", [](VocabData& data) { data.roles.bos = 6; },
                    "the BOS token is 6, but the vocabulary has 6 tokens"},
        HostileCase{"EosNegative", [](VocabData& data) { data.roles.eos = -2; },
                    "the EOS token is -2, but the vocabulary has 6 tokens"},
        HostileCase{"PadHuge", [](VocabData& data) { data.roles.pad = int64_t{1} << 32; },
                    "the padding token is 4294967296, but the vocabulary has 6 tokens"},
        HostileCase{"BosWantedButUnnamed",
                    [](VocabData& data) {
                        data.roles.bos.reset();
                        data.roles.add_bos = true;
                    },
                    "texts are to begin with a BOS token, but none is named"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellar
