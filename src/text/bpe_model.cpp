#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "gguf/printable.h"
#include "text/byte_alphabet.h"

namespace cellar {

namespace {

constexpr Token kUnspelled = -1;
constexpr Token kMerged = -2;
constexpr uint32_t kEnd = ~uint32_t{0};  // no neighbour on this side

struct Pair {
    Token left;
    Token right;
    Token made;
};

Result<Pair> parse_merge(const Vocab& vocab, size_t index, std::string_view merge) {
    // Searching from 1 lets a token that begins with a space stand on the left.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
        return fail(Code::kBadFile, fmt::format("merge {} is '{}': not two tokens with a space "
                                                "between",
                                                index, printable(merge)));
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    const auto left_token = vocab.find(left);
    const auto right_token = vocab.find(right);
    const auto made = vocab.find(std::string(left).append(right));
    if (!left_token || !right_token || !made)
        return fail(Code::kBadFile, fmt::format("merge {} is '{}': not two tokens that make a "
                                                "third",
                                                index, printable(merge)));
    return Pair{*left_token, *right_token, *made};
}

}  // namespace

Result<BpeModel> BpeModel::create(const Vocab& vocab, std::span<const std::string> merges) {
    BpeModel model(merges.size());
    bool spells_any = false;
    const ByteAlphabet alphabet;
    for (size_t byte = 0; byte < 256; ++byte) {
        const auto token = vocab.find(alphabet.letter(static_cast<uint8_t>(byte)));
        const bool usable = token && !vocab.is_control(*token);
        model.byte_tokens_[byte] = usable ? *token : kUnspelled;
        spells_any |= usable;
    }
    if (!spells_any) return fail(Code::kBadFile, "the vocabulary has no token for any byte");

    for (size_t rank = 0; rank < merges.size(); ++rank) {
        auto pair = parse_merge(vocab, rank, merges[rank]);
        if (!pair) return pass(std::move(pair));
        if (vocab.is_control(pair->made)) continue;
        model.merges_.add(pair->left, pair->right, {static_cast<uint32_t>(rank), pair->made});
    }
    return model;
}

void WordEncoder::encode(std::string_view word, std::vector<Token>& tokens) {
    while (!word.empty()) {
        const std::string_view part = word.substr(0, kLongestWord);
        encode_part(part, tokens);
        word.remove_prefix(part.size());
    }
}

void WordEncoder::encode_part(std::string_view part, std::vector<Token>& tokens) {
    spell(part);
    for (uint32_t i = 0; i < symbols_.size(); ++i)
        consider(i);
    std::make_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    merge_all();
    for (const Symbol& symbol : symbols_)
        if (symbol.token >= 0) tokens.push_back(symbol.token);
}

void WordEncoder::spell(std::string_view part) {
    symbols_.clear();
    candidates_.clear();
    const auto count = static_cast<uint32_t>(part.size());
    for (uint32_t i = 0; i < count; ++i) {
        const Token token = model_.byte_token(static_cast<uint8_t>(part[i]));
        symbols_.push_back({token, i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1});
    }
}

const Merge* WordEncoder::merge_after(uint32_t left) const {
    const Symbol& symbol = symbols_[left];
    if (symbol.next == kEnd) return nullptr;
    return model_.merges().find(symbol.token, symbols_[symbol.next].token);
}

void WordEncoder::consider(uint32_t left) {
    if (const Merge* found = merge_after(left))
        candidates_.push_back((uint64_t{found->rank} << 32) | left);
}

void WordEncoder::merge_all() {
    while (!candidates_.empty()) {
        const uint64_t best = candidates_.front();
        std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
        candidates_.pop_back();
        const auto left = static_cast<uint32_t>(best);
        const Merge* found = merge_after(left);
        if (!found || found->rank != best >> 32) continue;
        merge(left, found->made);
    }
}

void WordEncoder::merge(uint32_t left, Token made) {
    Symbol& symbol = symbols_[left];
    Symbol& taken = symbols_[symbol.next];
    symbol.token = made;
    symbol.next = taken.next;
    taken = {kMerged, kEnd, kEnd};
    if (symbol.next != kEnd) symbols_[symbol.next].previous = left;

    for (const uint32_t i : {symbol.previous, left}) {
        if (i == kEnd) continue;
        const size_t before = candidates_.size();
        consider(i);
        if (candidates_.size() > before)
            std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    }
}

}  // namespace cellar
