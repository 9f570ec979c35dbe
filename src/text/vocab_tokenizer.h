#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/special_splitter.h"
#include "text/tokenizer.h"

namespace cellar {

// Encodes text without special tokens: one thread's working space.
class PlainEncoder {
public:
    virtual ~PlainEncoder() = default;

    // Appends the tokens of `text`, which is all that stands between two special tokens.
    virtual void encode(std::string_view text, std::vector<Token>& tokens) = 0;
};

// What tokenizers share: special tokens are found in a text before anything else, what stands
// between them is encoded by each kind's own rules, and every token stands for some bytes.
class VocabTokenizer : public Tokenizer {
public:
    // The texts of special tokens, together: a trie holds them, at 16 times their size. Gemma,
    // which has the most that we know, needs 64 KiB.
    static constexpr size_t kSpecialBytes = size_t{1} << 24;

    VocabTokenizer(const VocabTokenizer&) = delete;
    VocabTokenizer& operator=(const VocabTokenizer&) = delete;

    const Vocab& vocab() const override { return vocab_; }
    bool adds_bos() const override { return adds_bos_; }
    std::vector<Token> encode_pieces(std::span<const TextPiece> pieces,
                                     bool add_bos) const override;
    std::string_view token_bytes(Token token) const override;

protected:
    VocabTokenizer(Vocab vocab, bool adds_bos) : vocab_(std::move(vocab)), adds_bos_(adds_bos) {}

    // To be called once, by who has made the object. Errors: kBadFile for special tokens of more
    // than kSpecialBytes.
    Result<void> index_tokens();

    // The bytes that an ordinary token stands for; special ones stand for their texts.
    virtual std::string spelled(Token token) const = 0;
    virtual std::unique_ptr<PlainEncoder> make_encoder() const = 0;

private:
    class Encoding;  // one encode_pieces at work

    bool is_special(Token token) const;
    Result<void> collect_specials();

    Vocab vocab_;
    const bool adds_bos_;
    std::string bytes_;         // of all tokens, one after the other
    std::vector<size_t> ends_;  // by token: where its bytes end in bytes_
    SpecialSplitter specials_;
};

}  // namespace cellar
