#include "text/regex.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <new>
#include <string>

namespace cellar {

namespace {

// PCRE2's own `\s` is either ASCII's or, with PCRE2_UCP, has U+180E in it, which Unicode took out
// of White_Space in 6.3 and tokenizers do not count as a space.
std::string with_unicode_spaces(std::string_view pattern) {
    std::string translated;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const bool escape = pattern[i] == '\\' && i + 1 < pattern.size();
        translated += pattern[i];
        if (!escape) continue;
        const char c = pattern[++i];
        if (c == 's')
            translated += "p{White_Space}";
        else if (c == 'S')
            translated += "P{White_Space}";
        else
            translated += c;
    }
    return translated;
}

const unsigned char* units(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string reason(int error) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return reinterpret_cast<const char*>(message.data());
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
    const std::string translated = with_unicode_spaces(pattern);
    int error = 0;
    size_t at = 0;
    pcre2_code* code = pcre2_compile(units(translated), translated.size(),
                                     PCRE2_UTF | PCRE2_NO_AUTO_CAPTURE, &error, &at, nullptr);
    if (!code)
        return fail(Code::kUnsupported, fmt::format("PCRE2 refuses the pattern '{}' at {}: {}",
                                                    translated, at, reason(error)));
    // Where there is no just-in-time compiler this fails, and matching interprets, more slowly.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return Regex(code);
}

RegexSearch::RegexSearch(const Regex& regex)
    : regex_(regex),
      data_(pcre2_match_data_create(1, nullptr)),
      limits_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !limits_) throw std::bad_alloc();
    // The limits guard against patterns that explode. Ours are linear, so with a run of 100 MB
    // PCRE2's defaults would only mistake a long text for such a pattern.
    constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();
    pcre2_set_match_limit(limits_.get(), kUnlimited);
    pcre2_set_depth_limit(limits_.get(), kUnlimited);
    pcre2_set_heap_limit(limits_.get(), kUnlimited);
}

std::optional<RegexSearch::Match> RegexSearch::next(std::string_view text, size_t from) {
    int found = match(text, from, 0);
    // The compiled code lives on a small stack of its own; the interpreter has the heap.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(text, from, PCRE2_NO_JIT);
    if (found < 0) return std::nullopt;
    const size_t* span = pcre2_get_ovector_pointer(data_.get());
    if (span[0] == span[1]) return std::nullopt;
    return Match{span[0], span[1]};
}

int RegexSearch::match(std::string_view text, size_t from, uint32_t options) {
    // Without NO_UTF_CHECK each call would check the rest of the text: quadratic in words.
    return pcre2_match(regex_.code_.get(), units(text), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, data_.get(), limits_.get());
}

}  // namespace cellar
