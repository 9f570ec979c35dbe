#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "text/bpe_model.h"
#include "text/pretokenizer.h"
#include "text/vocab_tokenizer.h"

namespace cellar {

// Byte-level BPE, as GPT-2 introduced it (`tokenizer.ggml.model` = "gpt2"): text is cut at special
// tokens, then into words, and each word is merged from bytes to tokens.
class BpeTokenizer final : public VocabTokenizer {
public:
    // Errors: kUnsupported for an unknown pre-tokenizer, kBadFile for merges that do not fit or
    // special tokens of more than kSpecialBytes.
    static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);

private:
    class Encoder;

    BpeTokenizer(Vocab vocab, bool adds_bos, Pretokenizer pretokenizer, BpeModel model);

    std::string spelled(Token token) const override;
    std::unique_ptr<PlainEncoder> make_encoder() const override;
    void collect_words();

    Pretokenizer pretokenizer_;
    BpeModel model_;
    std::unordered_map<std::string_view, Token> words_;  // empty unless whole words are taken
};

}  // namespace cellar
