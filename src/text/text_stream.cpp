#include "text/text_stream.h"

#include <string_view>

#include "text/utf8.h"

namespace cellar {

std::string TextStream::push(Token token) {
    const Vocab& vocab = tokenizer_.vocab();
    if (!vocab.contains(token) || (!show_control_ && vocab.is_control(token))) return {};
    bytes_ += tokenizer_.token_bytes(token);
    const std::string_view waiting = std::string_view(bytes_).substr(shown_);
    return show_until(shown_ + utf8_settled_prefix(waiting));
}

std::string TextStream::finish() {
    return show_until(bytes_.size());
}

std::string TextStream::show_until(size_t end) {
    const std::string_view text = std::string_view(bytes_).substr(shown_, end - shown_);
    shown_ = end;
    return utf8_for_display(text);
}

}  // namespace cellar
