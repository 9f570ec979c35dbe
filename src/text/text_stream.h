#pragma once

#include <string>

#include "base/types.h"
#include "text/tokenizer.h"

namespace cellar {

// Makes text of tokens as they come. Tokens end in the middle of characters; what this gives out is
// whole characters at any time. Borrows the tokenizer.
class TextStream {
public:
    // Control tokens leave no trace in the text unless they are to be shown.
    explicit TextStream(const Tokenizer& tokenizer, bool show_control = false)
        : tokenizer_(tokenizer), show_control_(show_control) {}

    // The text that `token` completes: well-formed UTF-8, and as much of it as is settled. Bytes
    // that can no longer become a character are given as U+FFFD.
    std::string push(Token token);

    // What was held back, an unfinished character as U+FFFD. The next push begins anew.
    std::string finish();

    // The bytes of all tokens so far as they are, also those that are no UTF-8.
    const std::string& bytes() const { return bytes_; }

private:
    std::string show_until(size_t end);

    const Tokenizer& tokenizer_;
    const bool show_control_;
    std::string bytes_;
    size_t shown_ = 0;  // how many of bytes_ were given out
};

}  // namespace cellar
