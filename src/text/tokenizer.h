#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "text/vocab.h"

namespace cellar {

struct EncodeOptions {
    // Texts of control tokens (`<|im_start|>`) become those tokens. Otherwise they are text like
    // any other: the only safe way to encode what comes from a user.
    bool parse_special = false;
    // Begin with BOS if the model wants texts to begin so.
    bool add_bos = false;
};

// A stretch of text in which control tokens are parsed or not.
struct TextPiece {
    std::string_view text;
    bool parse_special = false;
};

// Text to tokens and back, for one model. Constant after construction, so threads may share it.
class Tokenizer {
public:
    // Chooses by vocab.model(), and by vocab.pre() where that kind has pre-tokenizers.
    // Errors: kUnsupported if one of them is unknown, with the ones known; kBadFile if the
    // vocabulary contradicts itself.
    static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);

    // Whether `create` knows this kind of tokenizer; if not, the error that it would give.
    static Result<void> check_model(std::string_view model);

    virtual ~Tokenizer() = default;

    virtual const Vocab& vocab() const = 0;

    // Whether the model wants texts to begin with BOS.
    virtual bool adds_bos() const = 0;

    // Whether a space is put before a text, and before what follows a special token.
    virtual bool adds_space() const { return false; }

    // Tokens of `text`, which may be any bytes. Bytes that the vocabulary has no token for are left
    // out; all others come back from `decode`, unless the text has control tokens that are parsed
    // and then hidden.
    std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;

    // The same for a text in pieces that differ in what is parsed. Words may reach over the ends of
    // pieces, so cutting plain text into pieces does not change its tokens; the text of a control
    // token must lie within one piece.
    virtual std::vector<Token> encode_pieces(std::span<const TextPiece> pieces,
                                             bool add_bos) const = 0;

    // The bytes that `token` stands for: any, not always whole characters; a control token's name.
    // Empty for a token that is not in the vocabulary. Lives as long as the tokenizer.
    virtual std::string_view token_bytes(Token token) const = 0;

    // The bytes of all tokens; without those of control tokens unless they are to be shown, and
    // without the space that encoding put before the first word.
    std::string decode(std::span<const Token> tokens, bool show_control = false) const;
};

}  // namespace cellar
