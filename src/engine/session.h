#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/types.h"
#include "memory/memory.h"

namespace cellar {

// A sequence that stays between requests, and the tokens whose cells it holds. A request whose
// prompt begins with some of them computes only the rest: a conversation never computes twice.
struct Session {
    SeqId seq{0};
    std::vector<Token> tokens;
    bool busy = false;  // a request runs, or waits to run, in it

    // Makes the sequence hold a beginning of `prompt` and nothing else; returns its length. That is
    // the longest beginning already held, but never all of `prompt`: the last token has to be
    // computed for its logits. A sequence that cannot be rewound that far is emptied.
    size_t rewind_to(std::span<const Token> prompt, Memory& memory);
};

}  // namespace cellar
