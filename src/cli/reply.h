#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace cellar::cli {

// What one request wrote, and what it cost.
struct Reply {
    std::vector<Token> tokens;
    std::string text;  // well-formed UTF-8
    StopReason stop = StopReason::kEos;
    Usage usage;
    double prompt_ms = 0.0;  // until the prompt was computed
    double decode_ms = 0.0;  // after that

    // Tokens computed: of the prompt, and after it. The last token of a text is not computed.
    uint32_t prompt_n() const;
    uint32_t decode_n() const;
};

// Receives text as soon as it is whole characters; an error ends the request.
using OnText = std::function<Result<void>(std::string_view)>;

// Runs a request to its end; Ctrl-C ends it early, as cancelled. The engine has no other.
Result<Reply> write_reply(Engine& engine, Request request, const Tokenizer& tokenizer,
                          const OnText& on_text);

// The reply as JSON, the form that `generate` and `chat` share: prompt_tokens, cached_tokens (of
// these, that a session or a state held), tokens, text, stop_reason, timings.
nlohmann::ordered_json to_json(const Reply& reply);

// "5 tokens in 12 ms (417/s), …", for people.
std::string summary(const Reply& reply);

}  // namespace cellar::cli
