#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace cellar {

// Finds tokens that stand for themselves in a text: `<|im_start|>` and the like.
//
// A trie over the tokens' texts. Where two match, the one that begins first wins, and of those the
// longest. A search costs O(1) for each byte that begins no token's text, O(longest text) else.
class SpecialSplitter {
public:
    struct Hit {
        size_t begin;
        size_t end;
        Token token;
    };

    enum class Which {
        kAll,
        kPlain,  // without control tokens
    };

    // An empty text, or one that is there already, changes nothing.
    void add(std::string_view text, Token token, bool control);

    // The first token in `text` at or after `from`; nullopt if there is none.
    std::optional<Hit> next(std::string_view text, size_t from, Which which) const;

private:
    static constexpr uint32_t kNone = 0;  // node 0 is the root, which nothing leads to

    struct Node {
        uint32_t child = kNone;    // the first of its children
        uint32_t sibling = kNone;  // the next of its parent's children
        Token token = -1;          // -1: no text ends here
        uint8_t byte = 0;
        bool control = false;
    };

    uint32_t find_child(uint32_t node, uint8_t byte) const;
    uint32_t add_child(uint32_t node, uint8_t byte);
    std::optional<Hit> match_at(std::string_view text, size_t begin, Which which) const;

    std::vector<Node> nodes_{Node{}};
    std::array<uint32_t, 256> first_{};  // the root's children by byte: most bytes lead nowhere
};

}  // namespace cellar
