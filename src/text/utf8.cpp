#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace cellar {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The rules of a lead byte: how long its sequence is and which second bytes it allows. Later bytes
// are always 80..BF. Length 0: no sequence begins with it. (Unicode 15, table 3-7.)
struct Lead {
    size_t length;
    uint8_t second_min;
    uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
    if (byte < 0x80) return {1, 0, 0};
    if (byte < 0xC2) return {0, 0, 0};
    if (byte < 0xE0) return {2, 0x80, 0xBF};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3, 0x80, 0xBF};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4, 0x80, 0xBF};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

bool continues(const Lead& lead, size_t index, uint8_t byte) {
    if (index == 1) return lead.second_min <= byte && byte <= lead.second_max;
    return 0x80 <= byte && byte <= 0xBF;
}

bool is_ascii8(const char* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
    const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
    if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 1};
    for (size_t i = 1; i < lead.length; ++i) {
        if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i};
        if (!continues(lead, i, static_cast<uint8_t>(text[i])))
            return {Utf8Step::Kind::kInvalid, i};
    }
    return {Utf8Step::Kind::kComplete, lead.length};
}

size_t utf8_valid_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        while (at + 8 <= text.size() && is_ascii8(text.data() + at))
            at += 8;
        if (at == text.size()) break;
        const Utf8Step step = utf8_step(text.substr(at));
        if (step.kind != Utf8Step::Kind::kComplete) break;
        at += step.length;
    }
    return at;
}

size_t utf8_settled_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        at += utf8_valid_prefix(text.substr(at));
        if (at == text.size()) break;
        const Utf8Step step = utf8_step(text.substr(at));
        if (step.kind == Utf8Step::Kind::kIncomplete) break;
        at += step.length;
    }
    return at;
}

std::string utf8_for_display(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const size_t valid = utf8_valid_prefix(text);
        shown.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) break;
        shown.append(kReplacement);
        text.remove_prefix(utf8_step(text).length);
    }
    return shown;
}

}  // namespace cellar
