#include "text/vocab_tokenizer.h"

#include <fmt/format.h>

#include <utility>

namespace cellar {

// Text between special tokens is gathered over the ends of pieces before it is encoded.
class VocabTokenizer::Encoding {
public:
    explicit Encoding(const VocabTokenizer& tokenizer)
        : specials_(tokenizer.specials_), encoder_(tokenizer.make_encoder()) {}

    void add(const TextPiece& piece) {
        const auto which =
            piece.parse_special ? SpecialSplitter::Which::kAll : SpecialSplitter::Which::kPlain;
        size_t at = 0;
        while (const auto hit = specials_.next(piece.text, at, which)) {
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
        encoder_->encode(text_, tokens_);
        text_ = {};
        joined_.clear();
    }

    const SpecialSplitter& specials_;
    const std::unique_ptr<PlainEncoder> encoder_;
    std::string_view text_;  // not encoded yet: in a piece, or joined_
    std::string joined_;
    std::vector<Token> tokens_;
};

Result<void> VocabTokenizer::index_tokens() {
    if (auto collected = collect_specials(); !collected) return collected;
    for (Token token = 0; token < vocab_.size(); ++token) {
        bytes_ += is_special(token) ? vocab_.text(token) : spelled(token);
        ends_.push_back(bytes_.size());
    }
    return {};
}

bool VocabTokenizer::is_special(Token token) const {
    return vocab_.is_control(token) || vocab_.kind(token) == TokenKind::kUserDefined;
}

Result<void> VocabTokenizer::collect_specials() {
    size_t bytes = 0;
    for (Token token = 0; token < vocab_.size(); ++token) {
        if (!is_special(token)) continue;
        bytes += vocab_.text(token).size();
        if (bytes > kSpecialBytes)
            return fail(Code::kBadFile, fmt::format("special tokens have more than {} bytes of "
                                                    "text",
                                                    kSpecialBytes));
        specials_.add(vocab_.text(token), token, vocab_.is_control(token));
    }
    return {};
}

std::vector<Token> VocabTokenizer::encode_pieces(std::span<const TextPiece> pieces,
                                                 bool add_bos) const {
    Encoding encoding(*this);
    if (add_bos && adds_bos_) encoding.add_token(*vocab_.bos());
    for (const TextPiece& piece : pieces)
        encoding.add(piece);
    return encoding.finish();
}

std::string_view VocabTokenizer::token_bytes(Token token) const {
    if (!vocab_.contains(token)) return {};
    const auto index = static_cast<size_t>(token);
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::string_view(bytes_).substr(begin, ends_[index] - begin);
}

}  // namespace cellar
