#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cellar {

// The alphabet in which byte-level vocabularies spell their tokens (GPT-2's `bytes_to_unicode`):
// a byte that Latin-1 prints is written as that character; the others, in ascending order, as
// U+0100, U+0101, ... So the space is U+0120 and the newline U+010A.
class ByteAlphabet {
public:
    ByteAlphabet();

    // The character that stands for `byte`, in UTF-8.
    std::string_view letter(uint8_t byte) const { return letters_[byte]; }

    // The bytes that `word` spells; nullopt if any of it is not a letter of the alphabet.
    std::optional<std::string> spelled(std::string_view word) const;

private:
    static constexpr uint32_t kCodes = 0x100 + 68;  // 68 bytes are not printable

    std::array<std::string, 256> letters_;
    std::array<int16_t, kCodes> bytes_;  // by code point; -1: stands for no byte
};

}  // namespace cellar
