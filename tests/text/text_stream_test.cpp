#include "text/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "text/toy_vocab.h"
#include "text/utf8.h"

namespace cellar {
namespace {

using testing::ToyVocab;

// Pushes each byte as its token, and joins what comes with '|' after each push.
std::string pushed(TextStream& stream, std::string_view bytes) {
    std::string out;
    for (const char byte : bytes)
        out += stream.push(static_cast<uint8_t>(byte)) + "|";
    return out;
}

TEST(TextStream, GivesAsciiAtOnce) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(pushed(stream, "ab"), "a|b|");
    EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(pushed(stream, "\xF0\x9F\x99\x82!"), "|||\xF0\x9F\x99\x82|!|");
}

TEST(TextStream, GivesTheWholePartOfAToken) {
    ToyVocab toy;
    // "x", then the first two bytes of the euro sign, as the alphabet spells them.
    const Token mixed = toy.add("x\xC3\xA2\xC4\xA4", TokenKind::kNormal);
    const auto tokenizer = toy.tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(stream.push(mixed), "x");
    EXPECT_EQ(stream.push(0xAC), "\xE2\x82\xAC");
}

TEST(TextStream, ShowsABrokenCharacterAsSoonAsItCannotBeMended) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(pushed(stream, "\xE2\x82g\xFF"), "||\xEF\xBF\xBDg|\xEF\xBF\xBD|");
}

TEST(TextStream, FinishFlushesAnUnfinishedCharacter) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(pushed(stream, "a\xE2\x82"), "a|||");
    EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(stream.push('b'), "b");
    EXPECT_EQ(stream.bytes(),
              "a\xE2\x82"
              "b");
}

TEST(TextStream, ShowsControlTokensOnlyOnRequest) {
    ToyVocab toy;
    const Token end = toy.control("<|end|>");
    const auto tokenizer = toy.tokenizer();
    TextStream quiet(*tokenizer);
    EXPECT_EQ(quiet.push(end), "");
    EXPECT_EQ(quiet.bytes(), "");
    TextStream loud(*tokenizer, true);
    EXPECT_EQ(loud.push(end), "<|end|>");
}

TEST(TextStream, IgnoresTokensOutsideTheVocabulary) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    EXPECT_EQ(stream.push(-1), "");
    EXPECT_EQ(stream.push(256), "");
}

RC_GTEST_PROP(TextStreamProperty, IsTheTextForDisplayInPiecesThatAreWellFormed,
              (const std::string& bytes)) {
    const auto tokenizer = ToyVocab().tokenizer();
    TextStream stream(*tokenizer);
    std::string text;
    for (const char byte : bytes) {
        const std::string piece = stream.push(static_cast<uint8_t>(byte));
        RC_ASSERT(utf8_valid_prefix(piece) == piece.size());
        text += piece;
    }
    text += stream.finish();
    RC_ASSERT(text == utf8_for_display(bytes));
    RC_ASSERT(stream.bytes() == bytes);
}

}  // namespace
}  // namespace cellar
