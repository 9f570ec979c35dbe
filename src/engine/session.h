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
    uint64_t cells = 0;    // of the pages that they stand on
    bool shifted = false;  // some of them were moved, see kShiftPages
    bool moved = false;    // or moved by a reuse, see kReusePages
    bool busy = false;     // a request runs, or waits to run, in it

    // How many of its tokens `prompt` begins with, leaving at least one of `prompt` over: the last
    // token has to be computed for its logits.
    size_t shares(std::span<const Token> prompt) const;

    // Makes the sequence hold a beginning of `prompt` and nothing else; returns its length: what it
    // shares, or 0 for a sequence that cannot be rewound that far and is emptied.
    size_t rewind_to(std::span<const Token> prompt, Memory& memory);
};

}  // namespace cellar
