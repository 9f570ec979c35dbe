#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "text/chat_shape.h"
#include "text/tokenizer.h"

namespace cellar {

struct Message {
    std::string role;  // "system", "user", "assistant"; others are written as the user's are
    std::string content;
};

// A stretch of a rendered conversation. Only in what the format itself writes are control tokens
// parsed, so no message can end its own turn or speak in another's name.
struct ChatPiece {
    std::string text;
    bool parse_special = false;

    friend bool operator==(const ChatPiece&, const ChatPiece&) = default;
};

// How a model wants conversations written. Constant after construction.
//
// A conversation can be appended to without rendering it anew:
//     render(A, true) + reply + render_next(B, true) == render(A + reply + B, true)
// up to white space at the ends of the reply, which some formats write their own way. So whoever
// holds the tokens of what came before needs only those of what is new.
//
// BOS is not part of a rendering: encode_chat adds it.
class ChatFormat {
public:
    // By a GGUF file's `tokenizer.chat_template`, a Jinja program: it is recognised, not run.
    // `eos` is the text of the model's end-of-sequence token. Errors: kUnsupported if the family
    // is not known.
    static Result<ChatFormat> from_template(std::string_view jinja, std::string_view eos = "</s>");

    // The family's name, such as "chatml".
    std::string_view name() const { return shape_.name; }

    // A conversation from its beginning. With `add_generation_prompt`, a reply's beginning is
    // added.
    std::vector<ChatPiece> pieces(std::span<const Message> messages,
                                  bool add_generation_prompt) const;

    // What follows a reply's last character: its turn's end, and further messages.
    std::vector<ChatPiece> pieces_next(std::span<const Message> messages,
                                       bool add_generation_prompt) const;

    // The same as one text.
    std::string render(std::span<const Message> messages, bool add_generation_prompt) const;
    std::string render_next(std::span<const Message> messages, bool add_generation_prompt) const;

private:
    explicit ChatFormat(ChatShape shape) : shape_(std::move(shape)) {}

    ChatShape shape_;
};

// The tokens of a rendering. `add_bos` for the beginning of a conversation: adds BOS if the model
// wants it.
std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces,
                               bool add_bos);

}  // namespace cellar
