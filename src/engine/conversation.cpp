#include "engine/conversation.h"

#include <utility>

namespace cellar {

std::vector<Token> Conversation::prompt(std::string_view user_text) const {
    std::vector<Message> messages;
    const bool begins = tokens_.empty();
    if (begins && !system_.empty()) {
        messages.push_back({"system", system_});
    }
    messages.push_back({"user", std::string(user_text)});
    const std::vector<ChatPiece> pieces =
        begins ? format_.pieces(messages, true) : format_.pieces_next(messages, true);
    const std::vector<Token> news = encode_chat(tokenizer_, pieces, begins);
    std::vector<Token> tokens = tokens_;
    tokens.insert(tokens.end(), news.begin(), news.end());
    return tokens;
}

void Conversation::record(std::vector<Token> prompt, std::span<const Token> reply) {
    tokens_ = std::move(prompt);
    tokens_.insert(tokens_.end(), reply.begin(), reply.end());
}

void Conversation::drop(size_t first, size_t n) {
    const auto begin = tokens_.begin() + static_cast<ptrdiff_t>(first);
    tokens_.erase(begin, begin + static_cast<ptrdiff_t>(n));
}

}  // namespace cellar
