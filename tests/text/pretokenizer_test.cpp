#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cellar {
namespace {

using Words = std::vector<std::string>;

Words words_of(std::string_view name, std::string_view text) {
    const auto pretokenizer = Pretokenizer::create(name);
    EXPECT_TRUE(pretokenizer);
    Words words;
    pretokenizer->split(text, [&](std::string_view word) { words.emplace_back(word); });
    return words;
}

// What each of the four makes of a text. Expectations follow from the patterns that the models
// publish, checked with Python's `regex`.
struct SplitCase {
    const char* name;
    const char* text;
    Words gpt2;
    Words smollm;
    Words llama3;
    Words qwen2;
};

class SplitTest : public ::testing::TestWithParam<SplitCase> {};

TEST_P(SplitTest, CutsWhereTheModelsDo) {
    const SplitCase& test = GetParam();
    EXPECT_EQ(words_of("gpt-2", test.text), test.gpt2);
    EXPECT_EQ(words_of("smollm", test.text), test.smollm);
    EXPECT_EQ(words_of("llama-bpe", test.text), test.llama3);
    EXPECT_EQ(words_of("qwen2", test.text), test.qwen2);
}

SplitCase same(const char* name, const char* text, const Words& words) {
    return {name, text, words, words, words, words};
}

SplitCase two(const char* name, const char* text, const Words& old_way, const Words& new_way) {
    return {name, text, old_way, old_way, new_way, new_way};
}

INSTANTIATE_TEST_SUITE_P(
    Texts, SplitTest,
    ::testing::Values(
        same("Nothing", "", {}),
        same("Accents", "caf\u00E9 na\u00EFve", {"caf\u00E9", " na\u00EFve"}),
        same("InnerSpaces", "two  spaces   end", {"two", " ", " spaces", "  ", " end"}),
        same("TrailingSpaces", "end  ", {"end", "  "}),
        same("SpacesBeforePunctuation", "  !", {" ", " !"}),
        same("MixedWhiteSpaceBeforeAWord", " \t x", {" \t", " x"}),
        same("NewlinesAndSpacesBeforeAWord", "end. \n \n x", {"end", ".", " \n \n", " x"}),
        two("LowerCaseContractions", "it's we'll don't'x",
            {"it", "'s", " we", "'ll", " don", "'t", "'", "x"},
            {"it", "'s", " we", "'ll", " don", "'t", "'x"}),
        two("UpperCaseContractions", "HE'S THEY'RE", {"HE", "'", "S", " THEY", "'", "RE"},
            {"HE", "'S", " THEY", "'RE"}),
        two("LongS", "'\u017F", {"'", "\u017F"}, {"'\u017F"}),
        two("ATabBeforeAWord", "tab\tline", {"tab", "\t", "line"}, {"tab", "\tline"}),
        two("NewlinesBeforeAWord", "a\n\nb", {"a", "\n", "\n", "b"}, {"a", "\n\n", "b"}),
        two("NewlinesAfterPunctuation", "!!\n\nok", {"!!", "\n", "\n", "ok"}, {"!!\n\n", "ok"}),
        two("CarriageReturns", "\r\nx\r\n", {"\r", "\n", "x", "\r\n"}, {"\r\n", "x", "\r\n"}),
        two("Code", "foo_bar(baz)->y;", {"foo", "_", "bar", "(", "baz", ")->", "y", ";"},
            {"foo", "_bar", "(baz", ")->", "y", ";"}),
        two("CombiningMarks", "e\u0301te\u0301 \u0301x",
            {"e", "\u0301", "te", "\u0301", " \u0301", "x"},
            {"e", "\u0301te", "\u0301", " \u0301", "x"}),
        two("UnicodeSpaces", "a\u00A0\u3000b", {"a", "\u00A0", "\u3000", "b"},
            {"a", "\u00A0", "\u3000b"}),
        two("NoSpaceSinceUnicode6", "a\u180Eb", {"a", "\u180E", "b"}, {"a", "\u180Eb"}),
        SplitCase{"Digits",
                  "a 12345 b",
                  {"a", " 12345", " b"},
                  {"a", " ", "1", "2", "3", "4", "5", " b"},
                  {"a", " ", "123", "45", " b"},
                  {"a", " ", "1", "2", "3", "4", "5", " b"}},
        SplitCase{"Decimals",
                  "3.14159",
                  {"3", ".", "14159"},
                  {"3", ".", "1", "4", "1", "5", "9"},
                  {"3", ".", "141", "59"},
                  {"3", ".", "1", "4", "1", "5", "9"}},
        SplitCase{"DigitsOfOtherScripts",
                  "\u00BD\u2167\u0661\u0662",
                  {"\u00BD\u2167\u0661\u0662"},
                  {"\u00BD", "\u2167", "\u0661", "\u0662"},
                  {"\u00BD\u2167\u0661", "\u0662"},
                  {"\u00BD", "\u2167", "\u0661", "\u0662"}},
        SplitCase{"DigitsInJapanese",
                  "\u65E5\u672C123\u8A9E",
                  {"\u65E5\u672C", "123", "\u8A9E"},
                  {"\u65E5\u672C", "1", "2", "3", "\u8A9E"},
                  {"\u65E5\u672C", "123", "\u8A9E"},
                  {"\u65E5\u672C", "1", "2", "3", "\u8A9E"}},
        // A digit ends the text before it, so spaces there are not kept for it: unlike "  x".
        SplitCase{"SpacesBeforeADigit",
                  "a  1",
                  {"a", " ", " 1"},
                  {"a", "  ", "1"},
                  {"a", " ", " ", "1"},
                  {"a", " ", " ", "1"}}),
    [](const auto& info) { return info.param.name; });

TEST(Pretokenizer, CutsFilesThatNameNoneAsLlamaCppDoes) {
    EXPECT_EQ(words_of("", "it's 12345 +=x"), words_of("default", "it's 12345 +=x"));
    EXPECT_EQ(words_of("default", "it's 12345"), (Words{"it", "'", "s", " ", "123", "45"}));
    EXPECT_EQ(words_of("default", "a$b"), (Words{"a", "$", "b"}));
}

TEST(Pretokenizer, KnowsModelsThatCutAlike) {
    const std::string text = "A 12345 don'T\n\nx";
    EXPECT_EQ(words_of("gpt2", text), words_of("gpt-2", text));
    EXPECT_EQ(words_of("llama3", text), words_of("llama-bpe", text));
    EXPECT_EQ(words_of("llama-v3", text), words_of("llama-bpe", text));
    EXPECT_EQ(words_of("deepseek-r1-qwen", text), words_of("qwen2", text));
    EXPECT_EQ(words_of("starcoder", text), words_of("smollm", text));
}

TEST(Pretokenizer, OnlyTheLlamaFamilyTakesWholeWordsAndAddsBos) {
    EXPECT_TRUE(Pretokenizer::create("llama-bpe")->takes_whole_words());
    EXPECT_TRUE(Pretokenizer::create("llama-bpe")->adds_bos());
    for (const char* name : {"gpt-2", "smollm", "qwen2", "default"}) {
        EXPECT_FALSE(Pretokenizer::create(name)->takes_whole_words()) << name;
        EXPECT_FALSE(Pretokenizer::create(name)->adds_bos()) << name;
    }
}

TEST(Pretokenizer, NamesTheKnownOnesWhenItDoesNotKnowOne) {
    const auto unknown = Pretokenizer::create("kimi-k2\x1B[2J");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, Code::kUnsupported);
    EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("'kimi-k2?[2J'"));
    EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("smollm"));
    EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("qwen2"));
}

TEST(Pretokenizer, MakesBrokenBytesWordsOfTheirOwn) {
    EXPECT_EQ(words_of("gpt-2", "ab\xFF\xFEgh"), (Words{"ab", "\xFF\xFE", "gh"}));
    EXPECT_EQ(words_of("gpt-2", "a\xE2\x82"), (Words{"a", "\xE2\x82"}));
    EXPECT_EQ(words_of("gpt-2", "\xED\xA0\x80"), (Words{"\xED\xA0\x80"}));
}

RC_GTEST_PROP(PretokenizerProperty, WordsAreTheTextAgain, ()) {
    const auto name = *rc::gen::element<std::string>("gpt-2", "smollm", "llama-bpe", "qwen2", "");
    const auto text = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    std::string joined;
    for (const std::string& word : words_of(name, text)) {
        RC_ASSERT(!word.empty());
        joined += word;
    }
    RC_ASSERT(joined == text);
}

// Linear, and within PCRE2's limits: the patterns must not backtrack over such runs again and
// again.
TEST(Pretokenizer, TakesLongRunsInItsStride) {
    constexpr size_t kSize = size_t{1} << 22;
    for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"}) {
        for (const char c : {'a', ' ', '\n', '1', '!'}) {
            const auto pretokenizer = Pretokenizer::create(name);
            size_t size = 0;
            pretokenizer->split(std::string(kSize, c) + "x",
                                [&](std::string_view word) { size += word.size(); });
            EXPECT_EQ(size, kSize + 1) << name << " " << c;
        }
    }
}

}  // namespace
}  // namespace cellar
