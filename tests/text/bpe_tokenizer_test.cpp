#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/toy_vocab.h"

namespace cellar {
namespace {

using testing::ToyVocab;
using Tokens = std::vector<Token>;

constexpr EncodeOptions kParse{.parse_special = true};

TEST(BpeTokenizer, SpellsInBytesWhatNoMergeReaches) {
    const auto tokenizer = ToyVocab().tokenizer();
    EXPECT_EQ(tokenizer->encode("a\n"), (Tokens{'a', '\n'}));
    EXPECT_EQ(tokenizer->encode(""), Tokens{});
    EXPECT_EQ(tokenizer->encode(std::string_view("\0\xFF", 2)), (Tokens{0, 0xFF}));
}

TEST(BpeTokenizer, DoesTheLowestRankFirstAndOfEqualsTheLeftmost) {
    ToyVocab toy;
    const Token bc = toy.merge("b", "c");
    const Token ab = toy.merge("a", "b");
    const Token aa = toy.merge("a", "a");
    const auto tokenizer = toy.tokenizer();
    EXPECT_EQ(tokenizer->encode("abc"), (Tokens{'a', bc}));
    EXPECT_EQ(tokenizer->encode("abd"), (Tokens{ab, 'd'}));
    EXPECT_EQ(tokenizer->encode("aaa"), (Tokens{aa, 'a'}));
    EXPECT_EQ(tokenizer->encode("aab"), (Tokens{'a', ab}));
}

TEST(BpeTokenizer, DoesNotMergeAcrossWords) {
    ToyVocab toy;
    toy.merge("a", "\xC4\xA0");  // "a" and a space
    const auto tokenizer = toy.tokenizer();
    EXPECT_EQ(tokenizer->encode("a b"), (Tokens{'a', ' ', 'b'}));
}

TEST(BpeTokenizer, KeepsTheFirstOfTwoEqualMerges) {
    ToyVocab toy;
    const Token ab = toy.merge("a", "b");
    const Token bc = toy.merge("b", "c");
    toy.data().merges.push_back("a b");
    EXPECT_EQ(toy.tokenizer()->encode("abc"), (Tokens{ab, 'c'}));
    EXPECT_EQ(toy.tokenizer()->encode("bc"), Tokens{bc});
}

TEST(BpeTokenizer, LeavesOutBytesThatTheVocabularyCannotSpell) {
    ToyVocab toy;
    toy.merge("a", "b");
    toy.data().texts['x'] = "elsewhere";
    EXPECT_EQ(toy.tokenizer()->encode("axb"), (Tokens{'a', 'b'}));
}

TEST(BpeTokenizer, TakesWholeWordsOnlyWhereTheFamilyDoes) {
    for (const bool whole : {false, true}) {
        ToyVocab toy(whole ? "llama-bpe" : "gpt-2");
        const Token word = toy.add("abc", TokenKind::kNormal);  // no merge leads there
        const auto tokens = toy.tokenizer()->encode("abc");
        EXPECT_EQ(tokens, whole ? Tokens{word} : (Tokens{'a', 'b', 'c'}));
    }
}

TEST(BpeTokenizer, ParsesControlTokensOnlyOnRequest) {
    ToyVocab toy;
    const Token end = toy.control("<|end|>");
    const auto tokenizer = toy.tokenizer();
    EXPECT_EQ(tokenizer->encode("a<|end|>b", kParse), (Tokens{'a', end, 'b'}));
    const Tokens plain = tokenizer->encode("a<|end|>b");
    EXPECT_THAT(plain, ::testing::Not(::testing::Contains(end)));
    EXPECT_EQ(tokenizer->decode(plain), "a<|end|>b");
}

TEST(BpeTokenizer, MatchesUserDefinedTokensInEveryText) {
    ToyVocab toy;
    const Token tag = toy.user_defined("<tag>");
    EXPECT_EQ(toy.tokenizer()->encode("x<tag>"), (Tokens{'x', tag}));
    EXPECT_EQ(toy.tokenizer()->encode("x<tag>", kParse), (Tokens{'x', tag}));
}

// A control token may be spelled like a word: no merge and no whole word may lead there either.
TEST(BpeTokenizer, NeverMakesAControlTokenOfPlainText) {
    for (const char* pre : {"gpt-2", "llama-bpe"}) {
        ToyVocab toy(pre);
        const Token stop = toy.control("stop");
        const Token a = toy.control("ab");
        toy.merge("a", "b");
        const auto tokenizer = toy.tokenizer();
        EXPECT_EQ(tokenizer->encode("stop"), (Tokens{'s', 't', 'o', 'p'})) << pre;
        EXPECT_EQ(tokenizer->encode("ab"), (Tokens{'a', 'b'})) << pre;
        EXPECT_EQ(tokenizer->encode("stop", kParse), Tokens{stop}) << pre;
        EXPECT_EQ(tokenizer->encode("ab", kParse), Tokens{a}) << pre;
    }
}

TEST(BpeTokenizer, AddsBosWhereAskedAndWanted) {
    ToyVocab toy;
    const Token bos = toy.control("<s>");
    toy.data().roles.bos = bos;
    EXPECT_EQ(toy.tokenizer()->encode("a", {.add_bos = true}), Tokens{'a'});
    toy.data().roles.add_bos = true;
    EXPECT_TRUE(toy.tokenizer()->adds_bos());
    EXPECT_EQ(toy.tokenizer()->encode("a", {.add_bos = true}), (Tokens{bos, 'a'}));
    EXPECT_EQ(toy.tokenizer()->encode("a"), Tokens{'a'});
}

TEST(BpeTokenizer, AddsBosByDefaultInTheLlamaFamily) {
    ToyVocab toy("llama-bpe");
    EXPECT_FALSE(toy.tokenizer()->adds_bos());  // there is none
    toy.data().roles.bos = toy.control("<s>");
    EXPECT_TRUE(toy.tokenizer()->adds_bos());
    toy.data().roles.add_bos = false;
    EXPECT_FALSE(toy.tokenizer()->adds_bos());
}

TEST(BpeTokenizer, TokenBytesAreWhatTheTokenStandsFor) {
    ToyVocab toy;
    const Token word = toy.merge("\xC4\xA0", "a");  // a space and "a"
    const Token end = toy.control("<|\xC4\xA0|>");  // its name, not in the alphabet
    const Token foreign = toy.add("\xE2\x82\xAC", TokenKind::kNormal);
    const auto tokenizer = toy.tokenizer();
    EXPECT_EQ(tokenizer->token_bytes(word), " a");
    EXPECT_EQ(tokenizer->token_bytes(end), "<|\xC4\xA0|>");
    EXPECT_EQ(tokenizer->token_bytes(foreign), "\xE2\x82\xAC");
    EXPECT_EQ(tokenizer->token_bytes(-1), "");
    EXPECT_EQ(tokenizer->token_bytes(100000), "");
}

TEST(BpeTokenizer, DecodesControlTokensOnlyOnRequest) {
    ToyVocab toy;
    const Token end = toy.control("<|end|>");
    const auto tokenizer = toy.tokenizer();
    EXPECT_EQ(tokenizer->decode(Tokens{'a', end, -5, 'b'}), "ab");
    EXPECT_EQ(tokenizer->decode(Tokens{'a', end, 'b'}, true), "a<|end|>b");
}

TEST(BpeTokenizer, CutsWordsOverTheEndsOfPieces) {
    ToyVocab toy;
    const Token end = toy.control("<|end|>");
    toy.merge("a", "b");
    const auto tokenizer = toy.tokenizer();
    const std::vector<TextPiece> pieces = {
        {"x a", true}, {"b<|end|>", false}, {"\n", true}, {"\n<|end|>", true}};
    Tokens expected = tokenizer->encode("x ab<|end|>\n\n");
    expected.push_back(end);
    EXPECT_EQ(tokenizer->encode_pieces(pieces, false), expected);
}

TEST(BpeTokenizer, DoesNotParseAControlTokenThatPiecesMakeTogether) {
    ToyVocab toy;
    const Token end = toy.control("<|end|>");
    const std::vector<TextPiece> pieces = {{"<|en", true}, {"d|>", false}};
    EXPECT_THAT(toy.tokenizer()->encode_pieces(pieces, false),
                ::testing::Not(::testing::Contains(end)));
}

TEST(BpeTokenizer, EncodesARunOfMegabytes) {
    ToyVocab toy;
    toy.merge("a", "a");
    const Token four = toy.merge("aa", "aa");
    const std::string text(size_t{1} << 20, 'a');
    const auto tokens = toy.tokenizer()->encode(text);
    EXPECT_EQ(tokens, Tokens(text.size() / 4, four));
}

struct HostileCase {
    const char* name;
    std::function<void(ToyVocab&)> damage;
    Code code;
    const char* message;
};

class HostileBpeTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileBpeTest, IsRefusedInOneSentence) {
    ToyVocab toy;
    GetParam().damage(toy);
    const auto tokenizer = toy.create();
    ASSERT_FALSE(tokenizer);
    EXPECT_EQ(tokenizer.error().code, GetParam().code);
    EXPECT_THAT(tokenizer.error().message, ::testing::HasSubstr(GetParam().message));
}

void add_merge(ToyVocab& toy, std::string merge) {
    toy.data().merges.push_back(std::move(merge));
}

INSTANTIATE_TEST_SUITE_P(
    Damage, HostileBpeTest,
    ::testing::Values(
        HostileCase{"UnknownModel", [](ToyVocab& toy) { toy.data().model = "test"; },
                    Code::kUnsupported, "unknown tokenizer 'test'; known are: gpt2, llama"},
        HostileCase{"UnknownPre", [](ToyVocab& toy) { toy.data().pre = "mystery"; },
                    Code::kUnsupported, "unknown pre-tokenizer 'mystery'; known are: gpt-2"},
        HostileCase{"NoSpace", [](ToyVocab& toy) { add_merge(toy, "ab"); }, Code::kBadFile,
                    "merge 0 is 'ab': not two tokens with a space between"},
        HostileCase{"Empty", [](ToyVocab& toy) { add_merge(toy, ""); }, Code::kBadFile,
                    "merge 0 is '': not two tokens"},
        HostileCase{"NothingRight", [](ToyVocab& toy) { add_merge(toy, "a "); }, Code::kBadFile,
                    "merge 0 is 'a ': not two tokens that make a third"},
        HostileCase{"UnknownResult", [](ToyVocab& toy) { add_merge(toy, "a b"); }, Code::kBadFile,
                    "merge 0 is 'a b': not two tokens that make a third"},
        HostileCase{"UnknownPart",
                    [](ToyVocab& toy) {
                        toy.add("abc", TokenKind::kNormal);
                        add_merge(toy, "ab c");
                    },
                    Code::kBadFile, "merge 0 is 'ab c'"},
        HostileCase{"NoBytes",
                    [](ToyVocab& toy) {
                        for (std::string& text : toy.data().texts)
                            text += "?";
                    },
                    Code::kBadFile, "the vocabulary has no token for any byte"},
        HostileCase{"FloodOfSpecials",
                    [](ToyVocab& toy) {
                        for (int i = 0; i < 1025; ++i)
                            toy.control(std::to_string(i) + std::string(16370, 'x'));
                    },
                    Code::kBadFile, "special tokens have more than 16777216 bytes"}),
    [](const auto& info) { return info.param.name; });

// Merging by definition: of all neighbours that merge, the pair of the lowest rank, the leftmost.
class NaiveBpe {
public:
    explicit NaiveBpe(const std::vector<std::string>& merges) : merges_(merges) {}

    std::vector<std::string> merged(const std::string& word) const {
        std::vector<std::string> parts;
        for (const char c : word)
            parts.emplace_back(1, c);
        while (merge_best(parts)) {
        }
        return parts;
    }

private:
    bool merge_best(std::vector<std::string>& parts) const {
        for (const std::string& merge : merges_) {
            for (size_t i = 0; i + 1 < parts.size(); ++i) {
                if (parts[i] + " " + parts[i + 1] != merge) continue;
                parts[i] += parts[i + 1];
                parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                return true;
            }
        }
        return false;
    }

    const std::vector<std::string>& merges_;
};

// Merges of a vocabulary that was not trained: a later merge may feed an earlier one.
RC_GTEST_PROP(BpeTokenizerProperty, MergesAsTheDefinitionSays, ()) {
    ToyVocab toy;
    std::vector<std::string> parts = {"a", "b", "c"};
    for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
        const auto left = *rc::gen::elementOf(parts);
        const auto right = *rc::gen::elementOf(parts);
        toy.merge(left, right);
        parts.push_back(left + right);
    }
    const auto letters = rc::gen::element('a', 'b', 'c');
    const auto word = *rc::gen::container<std::string>(letters);
    const auto tokenizer = toy.tokenizer();
    std::vector<std::string> encoded;
    for (const Token token : tokenizer->encode(word))
        encoded.emplace_back(tokenizer->token_bytes(token));
    RC_ASSERT(encoded == NaiveBpe(toy.data().merges).merged(word));
}

RC_GTEST_PROP(BpeTokenizerProperty, AnyBytesComeBack, ()) {
    const auto pre = *rc::gen::element<std::string>("gpt-2", "smollm", "llama-bpe", "qwen2", "");
    ToyVocab toy(pre);
    toy.control("<|end|>");
    toy.user_defined("  ");
    toy.merge("a", "b");
    toy.merge("\xC4\xA0", "a");
    const auto tokenizer = toy.tokenizer();
    const auto text = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text)) == text);
    RC_ASSERT(tokenizer->decode(tokenizer->encode(text, kParse), true) == text);
}

}  // namespace
}  // namespace cellar
