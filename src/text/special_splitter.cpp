#include "text/special_splitter.h"

namespace cellar {

void SpecialSplitter::add(std::string_view text, Token token, bool control) {
    if (text.empty()) return;
    uint32_t node = 0;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        const uint32_t known = find_child(node, byte);
        node = known != kNone ? known : add_child(node, byte);
    }
    if (nodes_[node].token >= 0) return;
    nodes_[node].token = token;
    nodes_[node].control = control;
}

std::optional<SpecialSplitter::Hit> SpecialSplitter::next(std::string_view text, size_t from,
                                                          Which which) const {
    for (size_t at = from; at < text.size(); ++at) {
        if (first_[static_cast<uint8_t>(text[at])] == kNone) continue;
        if (const auto hit = match_at(text, at, which)) return hit;
    }
    return std::nullopt;
}

uint32_t SpecialSplitter::find_child(uint32_t node, uint8_t byte) const {
    if (node == 0) return first_[byte];
    uint32_t child = nodes_[node].child;
    while (child != kNone && nodes_[child].byte != byte)
        child = nodes_[child].sibling;
    return child;
}

uint32_t SpecialSplitter::add_child(uint32_t node, uint8_t byte) {
    const auto child = static_cast<uint32_t>(nodes_.size());
    Node made;
    made.byte = byte;
    made.sibling = nodes_[node].child;
    nodes_.push_back(made);
    nodes_[node].child = child;
    if (node == 0) first_[byte] = child;
    return child;
}

std::optional<SpecialSplitter::Hit> SpecialSplitter::match_at(std::string_view text, size_t begin,
                                                              Which which) const {
    std::optional<Hit> longest;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
        node = find_child(node, static_cast<uint8_t>(text[at]));
        if (node == kNone) break;
        const Node& reached = nodes_[node];
        if (reached.token < 0 || (reached.control && which == Which::kPlain)) continue;
        longest = Hit{begin, at + 1, reached.token};
    }
    return longest;
}

}  // namespace cellar
