#include "text/byte_alphabet.h"

#include "text/utf8.h"

namespace cellar {

namespace {

bool is_printable(uint32_t byte) {
    return (0x21 <= byte && byte <= 0x7E) || (0xA1 <= byte && byte <= 0xFF && byte != 0xAD);
}

std::string to_utf8(uint32_t code) {
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// The code point of a whole character of one or two bytes; all letters are that short.
uint32_t code_of(std::string_view letter) {
    const auto first = static_cast<uint8_t>(letter[0]);
    if (letter.size() == 1) return first;
    return ((first & 0x1Fu) << 6) | (static_cast<uint8_t>(letter[1]) & 0x3Fu);
}

}  // namespace

ByteAlphabet::ByteAlphabet() {
    bytes_.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const uint32_t code = is_printable(byte) ? byte : next++;
        letters_[byte] = to_utf8(code);
        bytes_[code] = static_cast<int16_t>(byte);
    }
}

std::optional<std::string> ByteAlphabet::spelled(std::string_view word) const {
    std::string bytes;
    while (!word.empty()) {
        const Utf8Step step = utf8_step(word);
        if (step.kind != Utf8Step::Kind::kComplete || step.length > 2) return std::nullopt;
        const uint32_t code = code_of(word.substr(0, step.length));
        if (code >= kCodes || bytes_[code] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(bytes_[code]));
        word.remove_prefix(step.length);
    }
    return bytes;
}

}  // namespace cellar
