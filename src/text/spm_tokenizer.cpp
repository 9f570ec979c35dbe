#include "text/spm_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace cellar {

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
constexpr uint32_t kEnd = ~uint32_t{0};              // no neighbour on this side

// What is merged as one: beyond that, what a merge at one end does to the other is worth no memory.
constexpr size_t kLongestText = size_t{1} << 24;

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0;;) {
        const size_t found = text.find(what, at);
        out += text.substr(at, found - at);
        if (found == std::string_view::npos) return out;
        out += by;
        at = found + what.size();
    }
}

}  // namespace

class SpmTokenizer::Encoder final : public PlainEncoder {
public:
    explicit Encoder(const SpmTokenizer& tokenizer) : tokenizer_(tokenizer) {}

    // O(n log n) time and about 40 bytes of memory for each byte of the text.
    void encode(std::string_view text, std::vector<Token>& tokens) override {
        text_ = tokenizer_.adds_space_ ? kSpace : "";
        text_ += replace_all(text, " ", kSpace);
        for (size_t at = 0; at < text_.size();) {
            const size_t size = part_size(std::string_view(text_).substr(at));
            encode_part(std::string_view(text_).substr(at, size), tokens);
            at += size;
        }
    }

private:
    // A part of the text in a list of neighbours. Joining keeps the left one and empties the right.
    struct Symbol {
        std::string_view text;
        uint32_t previous = kEnd;
        uint32_t next = kEnd;
    };

    struct Candidate {
        float score = 0;
        uint32_t left = 0;
        size_t size = 0;  // bytes of both

        // The best score first, and of equal ones the leftmost.
        bool operator<(const Candidate& other) const {
            return score != other.score ? score < other.score : left > other.left;
        }
    };

    static size_t part_size(std::string_view text) {
        if (text.size() <= kLongestText) return text.size();
        return std::max<size_t>(utf8_settled_prefix(text.substr(0, kLongestText)), 1);
    }

    void encode_part(std::string_view part, std::vector<Token>& tokens) {
        spell(part);
        for (uint32_t left = 0; left < symbols_.size(); ++left)
            consider(left);
        while (!candidates_.empty()) {
            const Candidate best = candidates_.front();
            std::pop_heap(candidates_.begin(), candidates_.end());
            candidates_.pop_back();
            if (joined(best.left).size() == best.size) join(best.left);
        }
        for (const Symbol& symbol : symbols_)
            if (!symbol.text.empty()) add(symbol.text, tokens);
    }

    // A character each, or what can be none.
    void spell(std::string_view part) {
        symbols_.clear();
        while (!part.empty()) {
            const size_t size = utf8_step(part).length;
            const auto index = static_cast<uint32_t>(symbols_.size());
            symbols_.push_back({part.substr(0, size), index == 0 ? kEnd : index - 1, index + 1});
            part.remove_prefix(size);
        }
        symbols_.back().next = kEnd;
    }

    // The symbol and its right neighbour, which stand side by side; empty if one is missing.
    std::string_view joined(uint32_t left) const {
        const Symbol& symbol = symbols_[left];
        if (symbol.text.empty() || symbol.next == kEnd) return {};
        return {symbol.text.data(), symbol.text.size() + symbols_[symbol.next].text.size()};
    }

    void consider(uint32_t left) {
        const std::string_view text = joined(left);
        const std::optional<Token> token = find(text);
        if (!token) return;
        candidates_.push_back({tokenizer_.vocab().score(*token), left, text.size()});
        std::push_heap(candidates_.begin(), candidates_.end());
    }

    void join(uint32_t left) {
        Symbol& symbol = symbols_[left];
        Symbol& taken = symbols_[symbol.next];
        symbol.text = joined(left);
        symbol.next = taken.next;
        taken = {};
        if (symbol.next != kEnd) symbols_[symbol.next].previous = left;
        if (symbol.previous != kEnd) consider(symbol.previous);
        consider(left);
    }

    // Text never becomes a control token, nor one that stands for a byte.
    std::optional<Token> find(std::string_view text) const {
        const Vocab& vocab = tokenizer_.vocab();
        const std::optional<Token> token = vocab.find(text);
        if (!token || vocab.is_control(*token) || vocab.kind(*token) == TokenKind::kByte)
            return std::nullopt;
        return token;
    }

    void add(std::string_view text, std::vector<Token>& tokens) const {
        if (const std::optional<Token> token = find(text)) {
            tokens.push_back(*token);
            return;
        }
        for (const char byte : text) {
            const Token token = tokenizer_.byte_tokens_[static_cast<uint8_t>(byte)];
            if (token >= 0) tokens.push_back(token);
        }
    }

    const SpmTokenizer& tokenizer_;
    std::string text_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> candidates_;  // a heap; one whose symbols have changed is passed over
};

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::create(Vocab vocab) {
    for (Token token = 0; token < vocab.size(); ++token) {
        if (std::isnan(vocab.score(token)))
            return fail(Code::kBadFile, fmt::format("the score of token {} is no number", token));
    }
    const bool adds_bos = vocab.bos() && vocab.add_bos().value_or(true);
    const bool adds_space = vocab.add_space_prefix().value_or(true);
    std::unique_ptr<SpmTokenizer> made(new SpmTokenizer(std::move(vocab), adds_bos, adds_space));
    if (auto indexed = made->index_tokens(); !indexed) return pass(std::move(indexed));
    return made;
}

SpmTokenizer::SpmTokenizer(Vocab vocab_given, bool adds_bos, bool adds_space)
    : VocabTokenizer(std::move(vocab_given), adds_bos), adds_space_(adds_space) {
    for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
        const auto token = vocab().find(fmt::format("<0x{:02X}>", byte));
        const bool usable = token && vocab().kind(*token) == TokenKind::kByte;
        byte_tokens_[byte] = usable ? *token : -1;
    }
}

std::string SpmTokenizer::spelled(Token token) const {
    if (vocab().kind(token) == TokenKind::kByte) {
        const auto byte = std::find(byte_tokens_.begin(), byte_tokens_.end(), token);
        if (byte != byte_tokens_.end())
            return std::string(1, static_cast<char>(byte - byte_tokens_.begin()));
    }
    return replace_all(vocab().text(token), kSpace, " ");
}

std::unique_ptr<PlainEncoder> SpmTokenizer::make_encoder() const {
    return std::make_unique<Encoder>(*this);
}

}  // namespace cellar
