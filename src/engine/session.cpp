#include "engine/session.h"

#include <algorithm>

namespace cellar {

size_t Session::shares(std::span<const Token> prompt) const {
    const auto differs =
        std::mismatch(tokens.begin(), tokens.end(), prompt.begin(), prompt.end()).first;
    const auto same = static_cast<size_t>(differs - tokens.begin());
    return same == prompt.size() && same > 0 ? same - 1 : same;
}

size_t Session::rewind_to(std::span<const Token> prompt, Memory& memory) {
    size_t same = shares(prompt);
    if (same == tokens.size()) {
        return same;
    }
    if (!memory.seq_rm(seq, static_cast<Pos>(same), kOpen)) {
        (void)memory.seq_rm(seq, 0, kOpen);
        same = 0;
    }
    tokens.resize(same);
    return same;
}

}  // namespace cellar
