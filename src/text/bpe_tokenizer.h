#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "text/bpe_model.h"
#include "text/pretokenizer.h"
#include "text/special_splitter.h"
#include "text/tokenizer.h"

namespace cellar {

// Byte-level BPE, as GPT-2 introduced it (`tokenizer.ggml.model` = "gpt2"): text is cut at special
// tokens, then into words, and each word is merged from bytes to tokens.
class BpeTokenizer final : public Tokenizer {
public:
    // Errors: kUnsupported for an unknown pre-tokenizer, kBadFile for merges that do not fit or
    // special tokens of more than kSpecialBytes.
    static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);

    // The texts of special tokens, together: a trie holds them, at 16 times their size. Gemma,
    // which has the most that we know, needs 64 KiB.
    static constexpr size_t kSpecialBytes = size_t{1} << 24;

    BpeTokenizer(const BpeTokenizer&) = delete;
    BpeTokenizer& operator=(const BpeTokenizer&) = delete;

    const Vocab& vocab() const override { return vocab_; }
    bool adds_bos() const override { return adds_bos_; }
    std::vector<Token> encode_pieces(std::span<const TextPiece> pieces,
                                     bool add_bos) const override;
    std::string_view token_bytes(Token token) const override;

private:
    class Encoding;  // one encode_pieces at work

    BpeTokenizer(Vocab vocab, Pretokenizer pretokenizer, BpeModel model);

    void spell_tokens();
    Result<void> collect_specials();
    void collect_words();

    Vocab vocab_;
    Pretokenizer pretokenizer_;
    BpeModel model_;
    bool adds_bos_;
    std::string bytes_;         // of all tokens, one after the other
    std::vector<size_t> ends_;  // by token: where its bytes end in bytes_
    SpecialSplitter specials_;
    std::unordered_map<std::string_view, Token> words_;  // empty unless whole words are taken
};

}  // namespace cellar
