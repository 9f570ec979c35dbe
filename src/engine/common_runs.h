#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/types.h"

namespace cellar {

// Tokens that two texts have in common: those of the one from `from` on are those of the other from
// `to` on.
struct CommonRun {
    size_t from = 0;
    size_t to = 0;
    size_t n = 0;

    friend bool operator==(const CommonRun&, const CommonRun&) = default;
};

// What of `held` can stand in `text`: the beginning that they share, however short, and behind it
// up to `most` runs of at least `at_least` tokens (0: none). The longest is taken first, then the
// longest of what is left on either side of it; so runs come in the order of both texts, and none
// lies over another. The last token of `text` is in none: it has to be computed for its logits.
// Sorted by place. O((held + text) log text) for each run.
std::vector<CommonRun> common_runs(std::span<const Token> held, std::span<const Token> text,
                                   size_t at_least, size_t most);

}  // namespace cellar
