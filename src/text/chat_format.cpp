#include "text/chat_format.h"

#include <utility>

namespace cellar {

namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpaces = " \t\n\v\f\r";
    const size_t begin = text.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Writes one conversation, or what is new of it.
class Writer {
public:
    explicit Writer(const ChatShape& shape) : shape_(shape) {}

    // The beginning of a conversation: the format may have something to say first.
    void begin(std::span<const Message> messages) {
        if (messages.empty()) return;
        first_ = true;
        if (shape_.default_system && messages.front().role != "system")
            message({"system", *shape_.default_system});
    }

    void end_reply() {
        special(shape_.assistant.close);
        after_reply_ = true;
    }

    void message(const Message& message) {
        if (message.role == "system")
            system(message);
        else if (message.role == "assistant")
            reply(message);
        else
            user(message);
        first_ = false;
    }

    void generation() {
        // A system message that still waits for a user to say it must not be lost.
        if (!waiting_.empty()) user({"user", ""});
        special(shape_.generation);
    }

    std::vector<ChatPiece> finish() { return std::move(pieces_); }

private:
    void system(const Message& message) {
        if (shape_.system_in_user) {
            waiting_.push_back(message);
            return;
        }
        open(shape_.system, message.role);
        if (first_) special(shape_.system_preface);
        content(shape_.system, message.content);
        special(shape_.system.close);
        after_reply_ = false;
    }

    void user(const Message& message) {
        if (after_reply_) special(shape_.between);
        open(shape_.user, message.role);
        for (const Message& system : std::exchange(waiting_, {})) {
            open(shape_.system, system.role);
            content(shape_.system, system.content);
            special(shape_.system.close);
        }
        content(shape_.user, message.content);
        special(shape_.user.close);
        after_reply_ = false;
    }

    void reply(const Message& message) {
        open(shape_.assistant, message.role);
        content(shape_.assistant, message.content);
        end_reply();
    }

    // The role may be anything that a request says, so it is no more trusted than the content.
    void open(const ChatTurn& turn, std::string_view role) {
        constexpr std::string_view kRole = "{role}";
        const size_t at = turn.open.find(kRole);
        special(std::string_view(turn.open).substr(0, at));
        if (at == std::string::npos) return;
        add(role, false);
        special(std::string_view(turn.open).substr(at + kRole.size()));
    }

    void content(const ChatTurn& turn, std::string_view text) {
        add(turn.trim ? trimmed(text) : text, false);
    }

    void special(std::string_view text) { add(text, true); }

    void add(std::string_view text, bool parse_special) {
        if (text.empty()) return;
        if (pieces_.empty() || pieces_.back().parse_special != parse_special)
            pieces_.push_back({{}, parse_special});
        pieces_.back().text += text;
    }

    const ChatShape& shape_;
    std::vector<ChatPiece> pieces_;
    std::vector<Message> waiting_;  // system messages for the next user's turn
    bool first_ = false;            // nothing of the conversation was written yet
    bool after_reply_ = false;
};

std::string text_of(std::span<const ChatPiece> pieces) {
    std::string text;
    for (const ChatPiece& piece : pieces)
        text += piece.text;
    return text;
}

}  // namespace

Result<ChatFormat> ChatFormat::from_template(std::string_view jinja, std::string_view eos) {
    auto shape = recognise_chat(jinja, eos);
    if (!shape) return pass(std::move(shape));
    return ChatFormat(std::move(*shape));
}

std::vector<ChatPiece> ChatFormat::pieces(std::span<const Message> messages,
                                          bool add_generation_prompt) const {
    Writer writer(shape_);
    writer.begin(messages);
    for (const Message& message : messages)
        writer.message(message);
    if (add_generation_prompt) writer.generation();
    return writer.finish();
}

std::vector<ChatPiece> ChatFormat::pieces_next(std::span<const Message> messages,
                                               bool add_generation_prompt) const {
    Writer writer(shape_);
    writer.end_reply();
    for (const Message& message : messages)
        writer.message(message);
    if (add_generation_prompt) writer.generation();
    return writer.finish();
}

std::string ChatFormat::render(std::span<const Message> messages,
                               bool add_generation_prompt) const {
    return text_of(pieces(messages, add_generation_prompt));
}

std::string ChatFormat::render_next(std::span<const Message> messages,
                                    bool add_generation_prompt) const {
    return text_of(pieces_next(messages, add_generation_prompt));
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces,
                               bool add_bos) {
    std::vector<TextPiece> texts;
    for (const ChatPiece& piece : pieces)
        texts.push_back({piece.text, piece.parse_special});
    return tokenizer.encode_pieces(texts, add_bos);
}

}  // namespace cellar
