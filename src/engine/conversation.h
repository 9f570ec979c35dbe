#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace cellar {

// A conversation as the tokens that a model sees. Replies stay the tokens that were sampled, and
// only what is new is encoded: each prompt begins with the whole conversation so far, token by
// token, so a session computes the new part alone. Borrows tokenizer and format.
class Conversation {
public:
    // `system` opens the conversation, unless it is empty.
    Conversation(const Tokenizer& tokenizer, const ChatFormat& format, std::string system)
        : tokenizer_(tokenizer), format_(format), system_(std::move(system)) {}

    // The conversation up to where the reply to `user_text` begins. Changes nothing.
    std::vector<Token> prompt(std::string_view user_text) const;

    // The conversation is `prompt`, then `reply`: tokens as sampled, without one that ends a turn.
    void record(std::vector<Token> prompt, std::span<const Token> reply);

    // Forgets the tokens [first, first + n), as the session that holds them did.
    void drop(size_t first, size_t n);

    void clear() { tokens_.clear(); }

    // Goes on from tokens that it once consisted of.
    void resume(std::vector<Token> tokens) { tokens_ = std::move(tokens); }
    std::span<const Token> tokens() const { return tokens_; }

private:
    const Tokenizer& tokenizer_;
    const ChatFormat& format_;
    const std::string system_;
    std::vector<Token> tokens_;  // empty, or ends with a reply whose turn is still open
};

}  // namespace cellar
