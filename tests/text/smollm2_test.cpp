// The tokenizer of a real model, against ids that llama.cpp computed (tests/data/text).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/chat_format.h"
#include "text/gguf_text.h"
#include "text/text_stream.h"

namespace cellar {
namespace {

const char* const kModel = CELLAR_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf";

// One load for all tests here; null if the model was not fetched.
const Tokenizer* smollm2() {
    static const auto tokenizer = []() -> std::unique_ptr<Tokenizer> {
        if (!std::filesystem::exists(kModel)) return nullptr;
        const auto file = GgufFile::open(kModel);
        return load_tokenizer(file.value()).value();
    }();
    return tokenizer.get();
}

class Smollm2Test : public ::testing::Test {
protected:
    void SetUp() override {
        if (!smollm2()) GTEST_SKIP() << kModel << " is missing: `make run` fetches it";
    }
};

TEST_F(Smollm2Test, TokenIdsEqualLlamaCpps) {
    std::ifstream file(CELLAR_TEST_DATA "/text/smollm2_tok.json");
    const auto cases = nlohmann::json::parse(file);
    ASSERT_EQ(cases.size(), 20u);
    for (const auto& each : cases) {
        const auto text = each["text"].get<std::string>();
        const auto tokens = each["tokens"].get<std::vector<Token>>();
        EXPECT_EQ(smollm2()->encode(text, {.parse_special = true}), tokens) << text;
        EXPECT_EQ(smollm2()->decode(tokens, true), text);
    }
}

TEST_F(Smollm2Test, KnowsItsRoles) {
    const Vocab& vocab = smollm2()->vocab();
    EXPECT_EQ(vocab.size(), 49152);
    EXPECT_EQ(vocab.bos(), 1);
    EXPECT_EQ(vocab.eos(), 2);
    EXPECT_TRUE(vocab.is_end(0));  // <|endoftext|>
    EXPECT_TRUE(vocab.is_end(2));  // <|im_end|>
    EXPECT_FALSE(vocab.is_end(1));
    EXPECT_FALSE(smollm2()->adds_bos());
}

TEST_F(Smollm2Test, LeavesControlTokensAsTextUnlessParsed) {
    const std::string text = "<|im_start|>user";
    const auto tokens = smollm2()->encode(text);
    for (const Token token : tokens)
        EXPECT_FALSE(smollm2()->vocab().is_control(token));
    EXPECT_EQ(smollm2()->decode(tokens), text);
}

TEST_F(Smollm2Test, ChatBeginsWithItsSystemMessage) {
    const auto file = GgufFile::open(kModel);
    ASSERT_TRUE(file);
    const auto jinja = find_chat_template(*file).value();
    ASSERT_TRUE(jinja);
    const auto format = ChatFormat::from_template(*jinja);
    ASSERT_TRUE(format);
    const std::vector<Message> messages = {{"user", "Hi"}};
    const std::string text =
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(format->render(messages, true), text);
    EXPECT_EQ(encode_chat(*smollm2(), format->pieces(messages, true), true),
              smollm2()->encode(text, {.parse_special = true}));
}

// The vocabulary was learned from text, so it has no token for these bytes: six control
// characters, and the lead bytes of U+40000..U+BFFFF, where nothing is assigned.
bool has_token(char byte) {
    return std::string_view("\x04\x06\x13\x14\x16\x1d\xf1\xf2").find(byte) ==
           std::string_view::npos;
}

void append_utf8(std::string& text, uint32_t code) {
    if (code < 0x80) {
        text += static_cast<char>(code);
        return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kLead[more] | (code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i)
        text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

rc::Gen<std::string> texts() {
    const auto code = rc::gen::oneOf(
        rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>(0x80, 0x3000),
        rc::gen::inRange<uint32_t>(0x3000, 0xD800), rc::gen::inRange<uint32_t>(0xE000, 0x30000),
        rc::gen::inRange<uint32_t>(0xE0000, 0x110000));
    return rc::gen::map(rc::gen::container<std::vector<uint32_t>>(code),
                        [](const std::vector<uint32_t>& codes) {
                            std::string text;
                            for (const uint32_t each : codes)
                                append_utf8(text, each);
                            std::erase_if(text, [](char byte) { return !has_token(byte); });
                            return text;
                        });
}

TEST_F(Smollm2Test, TextComesBack) {
    EXPECT_TRUE(rc::check("encode, then decode", [] {
        const auto text = *texts();
        RC_ASSERT(smollm2()->decode(smollm2()->encode(text)) == text);
    }));
}

TEST_F(Smollm2Test, BytesThatAreNoTextComeBack) {
    EXPECT_TRUE(rc::check("encode, then decode", [] {
        auto bytes = *rc::gen::container<std::string>(rc::gen::inRange<char>(-128, 127));
        std::erase_if(
            bytes, [](char byte) { return smollm2()->encode(std::string_view(&byte, 1)).empty(); });
        RC_ASSERT(smollm2()->decode(smollm2()->encode(bytes)) == bytes);
    }));
}

TEST_F(Smollm2Test, StreamedTextIsTheText) {
    const std::string text = "na\u00EFve \u65E5\u672C\u8A9E \U0001F642\u200D\U0001F467 end";
    TextStream stream(*smollm2());
    std::string streamed;
    for (const Token token : smollm2()->encode(text))
        streamed += stream.push(token);
    EXPECT_EQ(streamed, text);
    EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace cellar
