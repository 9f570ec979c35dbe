#include "text/bpe_tokenizer.h"

#include <utility>

#include "text/byte_alphabet.h"

namespace cellar {

class BpeTokenizer::Encoder final : public PlainEncoder {
public:
    explicit Encoder(const BpeTokenizer& tokenizer)
        : tokenizer_(tokenizer), words_(tokenizer.model_) {}

    void encode(std::string_view text, std::vector<Token>& tokens) override {
        tokenizer_.pretokenizer_.split(text,
                                       [&](std::string_view word) { encode_word(word, tokens); });
    }

private:
    void encode_word(std::string_view word, std::vector<Token>& tokens) {
        const auto whole = tokenizer_.words_.find(word);
        if (whole != tokenizer_.words_.end())
            tokens.push_back(whole->second);
        else
            words_.encode(word, tokens);
    }

    const BpeTokenizer& tokenizer_;
    WordEncoder words_;
};

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(Vocab vocab) {
    auto pretokenizer = Pretokenizer::create(vocab.pre());
    if (!pretokenizer) return pass(std::move(pretokenizer));
    auto model = BpeModel::create(vocab, vocab.take_merges());
    if (!model) return pass(std::move(model));
    const bool adds_bos = vocab.bos() && vocab.add_bos().value_or(pretokenizer->adds_bos());
    std::unique_ptr<BpeTokenizer> made(
        new BpeTokenizer(std::move(vocab), adds_bos, std::move(*pretokenizer), std::move(*model)));
    if (auto indexed = made->index_tokens(); !indexed) return pass(std::move(indexed));
    if (made->pretokenizer_.takes_whole_words()) made->collect_words();
    return made;
}

BpeTokenizer::BpeTokenizer(Vocab vocab, bool adds_bos, Pretokenizer pretokenizer, BpeModel model)
    : VocabTokenizer(std::move(vocab), adds_bos),
      pretokenizer_(std::move(pretokenizer)),
      model_(std::move(model)) {
}

// A text that the alphabet cannot spell stands for itself.
std::string BpeTokenizer::spelled(Token token) const {
    static const ByteAlphabet kAlphabet;
    const std::string& text = vocab().text(token);
    return kAlphabet.spelled(text).value_or(text);
}

std::unique_ptr<PlainEncoder> BpeTokenizer::make_encoder() const {
    return std::make_unique<Encoder>(*this);
}

void BpeTokenizer::collect_words() {
    for (Token token = 0; token < vocab().size(); ++token)
        if (vocab().kind(token) == TokenKind::kNormal) words_.emplace(token_bytes(token), token);
}

}  // namespace cellar
