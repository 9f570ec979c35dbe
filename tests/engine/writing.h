#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace cellar::testing {

// What a request came to.
struct Text {
    std::vector<Token> tokens;
    std::optional<StopReason> stop;
    std::optional<Error> error;
    Usage usage;

    void take(const Event& event) {
        if (event.token) tokens.push_back(*event.token);
        stop = event.stop;
        if (event.error) error = event.error;
        usage = event.usage;
    }
};

// Writes the likeliest tokens.
inline Request greedy(std::vector<Token> prompt, std::optional<uint32_t> max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0.0f;
    request.max_tokens = max_tokens;
    return request;
}

}  // namespace cellar::testing
