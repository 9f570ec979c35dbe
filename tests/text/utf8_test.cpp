#include "text/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "text/byte_alphabet.h"

namespace cellar {
namespace {

using Kind = Utf8Step::Kind;

struct StepCase {
    std::string_view text;
    Kind kind;
    size_t length;
};

class Utf8StepTest : public ::testing::TestWithParam<StepCase> {};

TEST_P(Utf8StepTest, TellsWhatTheTextBeginsWith) {
    const Utf8Step step = utf8_step(GetParam().text);
    EXPECT_EQ(step.kind, GetParam().kind);
    EXPECT_EQ(step.length, GetParam().length);
}

INSTANTIATE_TEST_SUITE_P(
    Bytes, Utf8StepTest,
    ::testing::Values(StepCase{"a", Kind::kComplete, 1}, StepCase{"\xC3\xA9!", Kind::kComplete, 2},
                      StepCase{"\xE2\x82\xAC", Kind::kComplete, 3},
                      StepCase{"\xF0\x9F\x99\x82", Kind::kComplete, 4},
                      StepCase{"\xC3", Kind::kIncomplete, 1},
                      StepCase{"\xE2\x82", Kind::kIncomplete, 2},
                      StepCase{"\xF0\x9F\x99", Kind::kIncomplete, 3},
                      StepCase{"\x80", Kind::kInvalid, 1},               // no lead byte
                      StepCase{"\xFF", Kind::kInvalid, 1},               // never in UTF-8
                      StepCase{"\xC0\xAF", Kind::kInvalid, 1},           // overlong "/"
                      StepCase{"\xE0\x80\x80", Kind::kInvalid, 1},       // overlong NUL
                      StepCase{"\xED\xA0\x80", Kind::kInvalid, 1},       // a surrogate
                      StepCase{"\xED\x9F\xBF", Kind::kComplete, 3},      // the last before them
                      StepCase{"\xF4\x8F\xBF\xBF", Kind::kComplete, 4},  // U+10FFFF
                      StepCase{"\xF4\x90\x80\x80", Kind::kInvalid, 1},   // beyond it
                      StepCase{"\xE2\x82x", Kind::kInvalid, 2},          // cut off, then something
                      StepCase{"\xF0\x9Fx", Kind::kInvalid, 2}));

TEST(Utf8, ValidPrefixEndsBeforeTheFirstBrokenByte) {
    EXPECT_EQ(utf8_valid_prefix(""), 0u);
    EXPECT_EQ(utf8_valid_prefix("twelve bytes"), 12u);
    EXPECT_EQ(utf8_valid_prefix("na\xC3\xAFve, and more\xFF!"), 16u);
    EXPECT_EQ(utf8_valid_prefix("eight by\xC3"), 8u);
}

TEST(Utf8, SettledPrefixHoldsBackOnlyAnUnfinishedEnd) {
    EXPECT_EQ(utf8_settled_prefix("abc"), 3u);
    EXPECT_EQ(utf8_settled_prefix("ab\xE2\x82"), 2u);
    EXPECT_EQ(utf8_settled_prefix("ab\xFF"), 3u);
    EXPECT_EQ(utf8_settled_prefix("\xE2\x82g\xF0\x9F"), 3u);
}

TEST(Utf8, DisplayReplacesEachBrokenRunOnce) {
    EXPECT_EQ(utf8_for_display("caf\xC3\xA9"), "caf\xC3\xA9");
    EXPECT_EQ(utf8_for_display("a\xE2\x82g"), "a\xEF\xBF\xBDg");
    EXPECT_EQ(utf8_for_display("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(utf8_for_display("x\xF0\x9F"), "x\xEF\xBF\xBD");
}

RC_GTEST_PROP(Utf8Property, DisplayIsAlwaysWellFormed, (const std::string& bytes)) {
    const std::string shown = utf8_for_display(bytes);
    RC_ASSERT(utf8_valid_prefix(shown) == shown.size());
}

TEST(ByteAlphabet, SpellsAsGpt2Does) {
    const ByteAlphabet alphabet;
    EXPECT_EQ(alphabet.letter('a'), "a");
    EXPECT_EQ(alphabet.letter(' '), "\xC4\xA0");   // U+0120
    EXPECT_EQ(alphabet.letter('\n'), "\xC4\x8A");  // U+010A
    EXPECT_EQ(alphabet.letter(0), "\xC4\x80");     // U+0100
    EXPECT_EQ(alphabet.letter(0xAD), "\xC5\x83");  // U+0143, the last one
    EXPECT_EQ(alphabet.letter(0xE9), "\xC3\xA9");
}

TEST(ByteAlphabet, HasNoBytesForForeignLetters) {
    const ByteAlphabet alphabet;
    EXPECT_FALSE(alphabet.spelled("a b"));           // a space is spelled U+0120
    EXPECT_FALSE(alphabet.spelled("\xC5\x84"));      // U+0144, one beyond the last
    EXPECT_FALSE(alphabet.spelled("\xE2\x82\xAC"));  // the euro sign
    EXPECT_FALSE(alphabet.spelled("a\xC4"));         // cut off
    EXPECT_EQ(alphabet.spelled(""), "");
}

RC_GTEST_PROP(ByteAlphabetProperty, SpellingAnyBytesGivesThemBack, (const std::string& bytes)) {
    const ByteAlphabet alphabet;
    std::string word;
    for (const char byte : bytes)
        word += alphabet.letter(static_cast<uint8_t>(byte));
    RC_ASSERT(alphabet.spelled(word) == bytes);
}

}  // namespace
}  // namespace cellar
