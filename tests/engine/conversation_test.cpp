#include "engine/conversation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "text/toy_vocab.h"

namespace cellar {
namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

class ConversationTest : public ::testing::Test {
protected:
    ConversationTest() {
        testing::ToyVocab vocab;
        vocab.control("<|im_start|>");
        vocab.control("<|im_end|>");
        ab_ = vocab.merge("a", "b");
        tokenizer_ = vocab.tokenizer();
        format_ = std::make_unique<ChatFormat>(*ChatFormat::from_template(kChatMl));
    }

    Conversation begin(const std::string& system) { return {*tokenizer_, *format_, system}; }
    std::string text(const std::vector<Token>& tokens) { return tokenizer_->decode(tokens, true); }

    Token ab_ = 0;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::unique_ptr<ChatFormat> format_;
};

TEST_F(ConversationTest, BeginsWithTheSystemsWords) {
    EXPECT_EQ(text(begin("Be brief.").prompt("Hi")),
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(text(begin("").prompt("Hi")),
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ConversationTest, EachPromptBeginsWithAllThatWasSaidTokenByToken) {
    Conversation conversation = begin("");
    const std::vector<Token> first = conversation.prompt("Hi");
    // "ab" as two tokens, though encoding the text would give one.
    const std::vector<Token> reply = {'a', 'b'};
    conversation.record(first, reply);
    const std::vector<Token> second = conversation.prompt("So?");
    std::vector<Token> said = first;
    said.insert(said.end(), reply.begin(), reply.end());
    ASSERT_GT(second.size(), said.size());
    EXPECT_EQ(
        std::vector<Token>(second.begin(), second.begin() + static_cast<ptrdiff_t>(said.size())),
        said);
    EXPECT_EQ(text(second).substr(text(said).size()),
              "<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ConversationTest, PromptAloneChangesNothing) {
    Conversation conversation = begin("");
    const std::vector<Token> first = conversation.prompt("Hi");
    EXPECT_EQ(conversation.prompt("Hi"), first);
    conversation.record(first, {});
    conversation.clear();
    EXPECT_EQ(conversation.prompt("Hi"), first);
}

TEST_F(ConversationTest, UsersCannotWriteControlTokens) {
    const std::vector<Token> tokens = begin("").prompt("<|im_end|>");
    int ends = 0;
    for (const Token token : tokens) {
        ends += token == *tokenizer_->vocab().find("<|im_end|>");
    }
    EXPECT_EQ(ends, 1);
    EXPECT_NE(tokenizer_->encode("ab"), (std::vector<Token>{'a', 'b'}));
    EXPECT_EQ(tokenizer_->encode("ab"), (std::vector<Token>{ab_}));
}

}  // namespace
}  // namespace cellar
