#include "text/spm_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/gguf_text.h"

namespace cellar {
namespace {

// A vocabulary in SentencePiece's spelling: <unk>, <s>, </s>, 256 bytes, then what a test adds.
class SpmTest : public ::testing::Test {
protected:
    SpmTest() {
        data_.model = "llama";
        add("<unk>", TokenKind::kUnknown, 0);
        data_.roles.bos = add("<s>", TokenKind::kControl, 0);
        data_.roles.eos = add("</s>", TokenKind::kControl, 0);
        for (int byte = 0; byte < 256; ++byte)
            add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte, 0);
    }

    Token add(std::string text, TokenKind kind, float score) {
        data_.texts.push_back(std::move(text));
        data_.kinds.push_back(static_cast<int32_t>(kind));
        data_.scores.push_back(score);
        return static_cast<Token>(data_.texts.size() - 1);
    }

    Token normal(std::string text, float score) {
        return add(std::move(text), TokenKind::kNormal, score);
    }

    static Token byte(uint8_t byte) { return 3 + byte; }

    std::unique_ptr<Tokenizer> tokenizer() const {
        return Tokenizer::create(Vocab::create(data_).value()).value();
    }

    VocabData data_;
};

using Tokens = std::vector<Token>;

TEST_F(SpmTest, TheBestScoreIsJoinedFirstThenTheLeftmost) {
    data_.roles.add_space_prefix = false;
    const Token a = normal("a", -9), b = normal("b", -9);
    const Token ab = normal("ab", -2), ba = normal("ba", -1), aba = normal("aba", -5);
    const auto spm = tokenizer();
    EXPECT_EQ(spm->encode("ab"), Tokens{ab});
    EXPECT_EQ(spm->encode("aba"), Tokens{aba});        // by "ba", then "a" + "ba"
    EXPECT_EQ(spm->encode("abab"), (Tokens{aba, b}));  // "ba" in the middle goes before both "ab"
    EXPECT_EQ(spm->encode("bb"), (Tokens{b, b}));
    data_.scores[static_cast<size_t>(ba)] = -2;
    EXPECT_EQ(tokenizer()->encode("aba"), (Tokens{aba}));
    EXPECT_EQ(tokenizer()->encode("aab"), (Tokens{a, ab}));
}

TEST_F(SpmTest, ACharacterThatIsNoTokenIsSpelledInBytes) {
    data_.roles.add_space_prefix = false;
    const Token a = normal("a", -1);
    const auto spm = tokenizer();
    EXPECT_EQ(spm->encode("a\xC3\xA9"), (Tokens{a, byte(0xC3), byte(0xA9)}));
    EXPECT_EQ(spm->encode("\xFF"), Tokens{byte(0xFF)});
    EXPECT_EQ(spm->decode(Tokens{byte(0xC3), byte(0xA9)}), "\xC3\xA9");
}

TEST_F(SpmTest, TextBecomesNoByteTokenAndNoControlToken) {
    data_.roles.add_space_prefix = false;
    for (const char* each : {"<", "s", ">", "<s", "0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"})
        normal(each, -1);
    const auto spm = tokenizer();
    EXPECT_EQ(spm->decode(spm->encode("<s>")), "<s>");
    EXPECT_EQ(spm->decode(spm->encode("<0x41>")), "<0x41>");
    EXPECT_EQ(spm->encode("<s>", {.parse_special = true}), Tokens{1});
}

TEST_F(SpmTest, ASpaceIsPutBeforeTextUnlessTheFileSaysNo) {
    const Token space = normal("\u2581", -1), a = normal("a", -1), word = normal("\u2581a", -0.5f);
    EXPECT_EQ(tokenizer()->encode("a a", {.add_bos = true}), (Tokens{1, word, word}));
    EXPECT_EQ(tokenizer()->decode(tokenizer()->encode("a a", {.add_bos = true})), "a a");
    EXPECT_EQ(tokenizer()->decode(tokenizer()->encode(" a")), " a");
    data_.roles.add_space_prefix = false;
    data_.roles.add_bos = false;
    EXPECT_EQ(tokenizer()->encode("a ", {.add_bos = true}), (Tokens{a, space}));
}

TEST_F(SpmTest, ScoresMustBeNumbers) {
    normal("a", std::numeric_limits<float>::quiet_NaN());
    const auto made = Tokenizer::create(Vocab::create(data_).value());
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::kBadFile);
    EXPECT_EQ(made.error().message, "the score of token 259 is no number");
}

TEST_F(SpmTest, AnyBytesComeBack) {
    const char* texts[] = {"a", "b", "ab", "\u2581", "\u2581a", "\u00E9", "aa", "\u00E9a"};
    for (const char* text : texts)
        normal(text, -static_cast<float>(data_.texts.size()));
    for (const bool prefix : {false, true}) {
        data_.roles.add_space_prefix = prefix;
        const auto spm = tokenizer();
        EXPECT_TRUE(rc::check("encode, then decode", [&] {
            const auto part = rc::gen::element<std::string>("a", "b", " ", "\u00E9", "\xC3", "z");
            std::string text;
            for (const std::string& each : *rc::gen::container<std::vector<std::string>>(part))
                text += each;
            RC_ASSERT(spm->decode(spm->encode(text, {.add_bos = true})) == text);
        }));
    }
}

TEST(Gemma3Test, TokenIdsEqualLlamaCpps) {
    const char* const model = CELLAR_MODELS "/gemma-3-270m-q4_k_m.gguf";
    if (!std::filesystem::exists(model)) {
        GTEST_SKIP() << model << " is missing: `make models` fetches it";
    }
    const auto file = GgufFile::open(model);
    const auto loaded = load_tokenizer(file.value());
    ASSERT_TRUE(loaded) << loaded.error().message;
    const Tokenizer& gemma = **loaded;
    EXPECT_TRUE(gemma.adds_bos());
    std::ifstream data(CELLAR_TEST_DATA "/text/gemma3_tok.json");
    const auto cases = nlohmann::json::parse(data);
    ASSERT_EQ(cases.size(), 20u);
    for (const auto& each : cases) {
        const auto text = each["text"].get<std::string>();
        const auto tokens = each["tokens"].get<Tokens>();
        EXPECT_EQ(gemma.encode(text, {.parse_special = true}), tokens) << text;
        EXPECT_EQ(gemma.decode(tokens, true), text);
    }
}

}  // namespace
}  // namespace cellar
