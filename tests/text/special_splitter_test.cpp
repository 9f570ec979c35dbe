#include "text/special_splitter.h"

#include <gtest/gtest.h>

#include <string>

namespace cellar {
namespace {

using Which = SpecialSplitter::Which;

SpecialSplitter splitter() {
    SpecialSplitter specials;
    specials.add("<|im_start|>", 1, true);
    specials.add("<|im_end|>", 2, true);
    specials.add("\n\n", 3, false);
    specials.add("\n\n\n", 4, false);
    specials.add("", 5, true);
    return specials;
}

// Tokens as <id>, text as it is.
std::string shown(const SpecialSplitter& specials, std::string_view text, Which which) {
    std::string out;
    size_t at = 0;
    while (const auto hit = specials.next(text, at, which)) {
        out.append(text.substr(at, hit->begin - at));
        out.append("<" + std::to_string(hit->token) + ">");
        at = hit->end;
    }
    return out.append(text.substr(at));
}

TEST(SpecialSplitter, FindsEveryToken) {
    EXPECT_EQ(shown(splitter(), "<|im_start|>a<|im_end|>", Which::kAll), "<1>a<2>");
    EXPECT_EQ(shown(splitter(), "<|im_end|><|im_end|>", Which::kAll), "<2><2>");
    EXPECT_EQ(shown(splitter(), "no token at all", Which::kAll), "no token at all");
    EXPECT_EQ(shown(splitter(), "", Which::kAll), "");
}

TEST(SpecialSplitter, PassesOverBeginningsOfTokens) {
    EXPECT_EQ(shown(splitter(), "<|im_<|im_end|>", Which::kAll), "<|im_<2>");
    EXPECT_EQ(shown(splitter(), "<<<|im_end|", Which::kAll), "<<<|im_end|");
}

TEST(SpecialSplitter, TakesTheLongestOfThoseThatBeginFirst) {
    EXPECT_EQ(shown(splitter(), "\n\n\n\n\n", Which::kAll), "<4><3>");
    EXPECT_EQ(shown(splitter(), "\n", Which::kAll), "\n");
}

TEST(SpecialSplitter, LeavesControlTokensWhenAskedTo) {
    EXPECT_EQ(shown(splitter(), "<|im_end|>\n\nx", Which::kPlain), "<|im_end|><3>x");
}

// A control token that continues a plain one must not hide it.
TEST(SpecialSplitter, FindsThePlainTokenInsideAControlToken) {
    SpecialSplitter specials;
    specials.add("<a", 1, false);
    specials.add("<a>", 2, true);
    EXPECT_EQ(shown(specials, "<a>", Which::kPlain), "<1>>");
    EXPECT_EQ(shown(specials, "<a>", Which::kAll), "<2>");
}

TEST(SpecialSplitter, MatchesAnyBytes) {
    SpecialSplitter specials;
    specials.add("\xFF\x80", 9, true);
    EXPECT_EQ(shown(specials, "a\xFF\xFF\x80", Which::kAll), "a\xFF<9>");
}

}  // namespace
}  // namespace cellar
