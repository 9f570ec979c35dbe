#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cellar {

// What text begins with, by the Unicode standard's table of well-formed UTF-8: no overlong forms,
// no surrogates, nothing beyond U+10FFFF.
struct Utf8Step {
    enum class Kind {
        kComplete,    // a whole character
        kIncomplete,  // all of the text: more bytes could still make it a character
        kInvalid,     // bytes that no continuation makes a character
    };
    Kind kind;
    size_t length;  // bytes that this says something about, at least 1
};

// Requires: text is not empty. O(1).
Utf8Step utf8_step(std::string_view text);

// How many bytes at the beginning of `text` are whole characters.
size_t utf8_valid_prefix(std::string_view text);

// How many bytes at the beginning of `text` no continuation can change: all but the beginning of a
// character at the end.
size_t utf8_settled_prefix(std::string_view text);

// `text` for a screen: one U+FFFD for each run that utf8_step calls invalid, and for a cut-off end.
std::string utf8_for_display(std::string_view text);

}  // namespace cellar
