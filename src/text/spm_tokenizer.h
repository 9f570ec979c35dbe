#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/vocab_tokenizer.h"

namespace cellar {

// SentencePiece's BPE (`tokenizer.ggml.model` = "llama"): spaces are written U+2581, and of all
// neighbours that together are a token, those with the best score are joined first, from characters
// upward. A character that is no token is spelled with byte tokens, `<0x41>`.
class SpmTokenizer final : public VocabTokenizer {
public:
    // Errors: kBadFile for scores that are no numbers, or special tokens of more than
    // kSpecialBytes.
    static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);

    bool adds_space() const override { return adds_space_; }

private:
    class Encoder;

    SpmTokenizer(Vocab vocab, bool adds_bos, bool adds_space);

    std::string spelled(Token token) const override;
    std::unique_ptr<PlainEncoder> make_encoder() const override;

    const bool adds_space_;
    std::array<Token, 256> byte_tokens_;  // -1: the vocabulary cannot spell this byte
};

}  // namespace cellar
