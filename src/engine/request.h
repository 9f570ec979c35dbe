#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "engine/sampler.h"

namespace cellar {

enum class RequestId : uint64_t {};
enum class SessionId : uint32_t {};

// What a caller wants written: a text to go on from, and when to stop.
struct Request {
    std::vector<Token> prompt;  // never empty
    SamplerParams sampling;
    std::optional<uint32_t> max_tokens;  // to generate; none: until the context is full
    bool ignore_eos = false;             // go on after end-of-generation tokens, as after any other
    std::optional<SessionId> session;    // computes in this session's sequence, and leaves it there
    // When the context is full: keep so many tokens from the beginning, drop the older half of the
    // others, and go on. None: the text ends.
    std::optional<uint32_t> context_shift;
    // Of what the session holds elsewhere than the prompt has it, use runs of at least so many
    // tokens again, moved to their place: up to kReuseJoints, an approximation (chunk_reuse.h). 0:
    // only what both begin with, exactly. So too where the memory cannot move positions, a window
    // does not reach back to what would have to be kept, others take all sequences that there is
    // room for, or the prompt is longer than the context.
    uint32_t reuse_chunks = 0;
};

enum class StopReason {
    kEos,        // the model ended its text; the end-of-generation token is not handed out
    kLength,     // max_tokens were generated, or the context is full
    kCancelled,  // the caller asked
};

// "eos", "length", "cancelled".
constexpr std::string_view name(StopReason reason) {
    constexpr std::string_view kNames[] = {"eos", "length", "cancelled"};
    return kNames[static_cast<size_t>(reason)];
}

// Tokens of a request so far.
struct Usage {
    uint32_t prompt = 0;     // in the prompt
    uint32_t cached = 0;     // of these, held already by the session and used again so far
    uint32_t computed = 0;   // that this request computed, of prompt and generated ones
    uint32_t generated = 0;  // handed out
    uint32_t dropped = 0;    // forgotten behind the first ones, by context shifts
};

// What a step did for one request: a token, an end, or both at once.
struct Event {
    RequestId request{0};
    std::optional<Token> token;
    std::optional<StopReason> stop;  // ended well
    std::optional<Error> error;      // ended badly; never together with stop
    Usage usage;

    bool last() const { return stop || error; }
};

}  // namespace cellar
