#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "text/byte_alphabet.h"

namespace cellar {

namespace {

bool is_special(const Vocab& vocab, Token token) {
    return vocab.is_control(token) || vocab.kind(token) == TokenKind::kUserDefined;
}

}  // namespace

// Text between special tokens is gathered over the ends of pieces before it is cut into words.
class BpeTokenizer::Encoding {
public:
    explicit Encoding(const BpeTokenizer& tokenizer)
        : tokenizer_(tokenizer), words_(tokenizer.model_) {}

    void add(const TextPiece& piece) {
        const auto which =
            piece.parse_special ? SpecialSplitter::Which::kAll : SpecialSplitter::Which::kPlain;
        size_t at = 0;
        while (const auto hit = tokenizer_.specials_.next(piece.text, at, which)) {
            add_text(piece.text.substr(at, hit->begin - at));
            add_token(hit->token);
            at = hit->end;
        }
        add_text(piece.text.substr(at));
    }

    void add_token(Token token) {
        encode_text();
        tokens_.push_back(token);
    }

    std::vector<Token> finish() {
        encode_text();
        return std::move(tokens_);
    }

private:
    void add_text(std::string_view text) {
        if (text.empty()) return;
        if (text_.empty()) {
            text_ = text;  // the usual case: nothing is copied
            return;
        }
        if (joined_.empty()) joined_ = text_;
        joined_ += text;
        text_ = joined_;
    }

    void encode_text() {
        if (text_.empty()) return;
        tokenizer_.pretokenizer_.split(text_, [this](std::string_view word) { encode_word(word); });
        text_ = {};
        joined_.clear();
    }

    void encode_word(std::string_view word) {
        const auto whole = tokenizer_.words_.find(word);
        if (whole != tokenizer_.words_.end())
            tokens_.push_back(whole->second);
        else
            words_.encode(word, tokens_);
    }

    const BpeTokenizer& tokenizer_;
    WordEncoder words_;
    std::string_view text_;  // not encoded yet: in a piece, or joined_
    std::string joined_;
    std::vector<Token> tokens_;
};

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(Vocab vocab) {
    auto pretokenizer = Pretokenizer::create(vocab.pre());
    if (!pretokenizer) return pass(std::move(pretokenizer));
    auto model = BpeModel::create(vocab, vocab.take_merges());
    if (!model) return pass(std::move(model));
    std::unique_ptr<BpeTokenizer> made(
        new BpeTokenizer(std::move(vocab), std::move(*pretokenizer), std::move(*model)));
    if (auto collected = made->collect_specials(); !collected) return pass(std::move(collected));
    made->spell_tokens();
    if (made->pretokenizer_.takes_whole_words()) made->collect_words();
    return made;
}

BpeTokenizer::BpeTokenizer(Vocab vocab, Pretokenizer pretokenizer, BpeModel model)
    : vocab_(std::move(vocab)),
      pretokenizer_(std::move(pretokenizer)),
      model_(std::move(model)),
      adds_bos_(vocab_.bos() && vocab_.add_bos().value_or(pretokenizer_.adds_bos())) {
}

// Special tokens stand for their text as it is; so does a text that the alphabet cannot spell.
void BpeTokenizer::spell_tokens() {
    const ByteAlphabet alphabet;
    for (Token token = 0; token < vocab_.size(); ++token) {
        const std::string& text = vocab_.text(token);
        bytes_ += is_special(vocab_, token) ? text : alphabet.spelled(text).value_or(text);
        ends_.push_back(bytes_.size());
    }
}

Result<void> BpeTokenizer::collect_specials() {
    size_t bytes = 0;
    for (Token token = 0; token < vocab_.size(); ++token) {
        if (!is_special(vocab_, token)) continue;
        bytes += vocab_.text(token).size();
        if (bytes > kSpecialBytes)
            return fail(Code::kBadFile, fmt::format("special tokens have more than {} bytes of "
                                                    "text",
                                                    kSpecialBytes));
        specials_.add(vocab_.text(token), token, vocab_.is_control(token));
    }
    return {};
}

void BpeTokenizer::collect_words() {
    for (Token token = 0; token < vocab_.size(); ++token)
        if (vocab_.kind(token) == TokenKind::kNormal) words_.emplace(token_bytes(token), token);
}

std::vector<Token> BpeTokenizer::encode_pieces(std::span<const TextPiece> pieces,
                                               bool add_bos) const {
    Encoding encoding(*this);
    if (add_bos && adds_bos_) encoding.add_token(*vocab_.bos());
    for (const TextPiece& piece : pieces)
        encoding.add(piece);
    return encoding.finish();
}

std::string_view BpeTokenizer::token_bytes(Token token) const {
    if (!vocab_.contains(token)) return {};
    const auto index = static_cast<size_t>(token);
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::string_view(bytes_).substr(begin, ends_[index] - begin);
}

}  // namespace cellar
