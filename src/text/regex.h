#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace cellar {

// A compiled pattern over UTF-8 (PCRE2, with its just-in-time compiler where there is one).
// Constant, so threads may share it; each searches with a RegexSearch of its own.
class Regex {
public:
    // `\s` and `\S` mean Unicode's White_Space, `\p{..}` Unicode's properties.
    // Errors: kUnsupported with PCRE2's reason, for example that it was built without Unicode.
    static Result<Regex> compile(std::string_view pattern);

private:
    friend class RegexSearch;
    struct Free {
        void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    };

    explicit Regex(pcre2_code* code) : code_(code) {}

    std::unique_ptr<pcre2_code, Free> code_;
};

// Searches with one Regex. For one thread; borrows the Regex.
class RegexSearch {
public:
    struct Match {
        size_t begin;
        size_t end;
    };

    explicit RegexSearch(const Regex& regex);

    // The first match in `text` at or after `from`, or nullopt; an empty match counts as none.
    // Requires: all of `text` is well-formed UTF-8, and `from` does not cut a character.
    std::optional<Match> next(std::string_view text, size_t from);

private:
    struct Free {
        void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
        void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    };

    int match(std::string_view text, size_t from, uint32_t options);

    const Regex& regex_;
    std::unique_ptr<pcre2_match_data, Free> data_;
    std::unique_ptr<pcre2_match_context, Free> limits_;
};

}  // namespace cellar
