#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace cellar {

// What kind of entry a token is. The numbers are those of GGUF files.
enum class TokenKind : uint8_t {
    kUndefined = 0,
    kNormal = 1,
    kUnknown = 2,      // stands for text that the vocabulary cannot spell
    kControl = 3,      // steers the model; text becomes one only where control is parsed
    kUserDefined = 4,  // matched in every text before anything else
    kUnused = 5,
    kByte = 6,
};

// The tokens that a file gives a role, by id.
struct VocabRoles {
    std::optional<int64_t> bos, eos, eot, eom, unk, pad;
    std::optional<bool> add_bos, add_space_prefix;
};

// A vocabulary as a file states it: nothing in it is checked.
struct VocabData {
    std::string model;                // the kind of tokenizer: "gpt2" or "llama"
    std::string pre;                  // the pre-tokenizer's name; empty if the file has none
    std::vector<std::string> texts;   // by token, in the tokenizer's own spelling
    std::vector<int32_t> kinds;       // by token, TokenKind's numbers; or empty: all are normal
    std::vector<float> scores;        // by token; or empty: all are 0
    std::vector<std::string> merges;  // "left right", the first to apply first
    VocabRoles roles;
};

// The tokens of a model and their roles, checked: every id that it hands out is one of its tokens.
// Constant after construction, so threads may share it. Move-only: views point into it.
class Vocab {
public:
    // Longer texts are refused: no real token comes near (the longest we know has 1,024 bytes),
    // and matching tokens in a text costs up to this much for each byte of it.
    static constexpr size_t kLongestText = 16384;

    // Errors: kBadFile if lists do not have one element for each token, an id is not a token, two
    // tokens have the same text, a kind is not one of TokenKind's, or a text is too long.
    static Result<Vocab> create(VocabData data);

    Vocab(Vocab&&) = default;
    Vocab& operator=(Vocab&&) = default;

    const std::string& model() const { return model_; }
    const std::string& pre() const { return pre_; }

    Token size() const { return static_cast<Token>(texts_.size()); }
    bool contains(Token token) const { return 0 <= token && token < size(); }

    // Of a token that the vocabulary contains.
    const std::string& text(Token token) const { return texts_[index(token)]; }
    TokenKind kind(Token token) const { return kinds_[index(token)]; }
    float score(Token token) const { return scores_.empty() ? 0.0f : scores_[index(token)]; }

    // Whether plain text must never become this token: it is control, or stands for the unknown.
    bool is_control(Token token) const;

    // The token spelled exactly so. Empty texts are never found.
    std::optional<Token> find(std::string_view text) const;

    std::optional<Token> bos() const { return bos_; }
    std::optional<Token> eos() const { return eos_; }
    std::optional<Token> unk() const { return unk_; }
    std::optional<Token> pad() const { return pad_; }

    // The tokens that end a generation, ascending: end of sequence, of turn, of message, by the
    // file's ids and by the names that known models give them.
    std::span<const Token> ends() const { return ends_; }
    bool is_end(Token token) const;

    // What the file says about beginning texts with BOS; if true, there is a bos().
    std::optional<bool> add_bos() const { return add_bos_; }

    // What the file says about beginning texts with a space.
    std::optional<bool> add_space_prefix() const { return add_space_prefix_; }

    // Gives the merges away: they are needed once, to build a tokenizer.
    std::vector<std::string> take_merges() { return std::move(merges_); }

private:
    explicit Vocab(VocabData data);

    static size_t index(Token token) { return static_cast<size_t>(token); }
    Result<void> build_index();
    Result<void> set_roles(const VocabRoles& roles);
    void collect_ends(std::span<const std::optional<Token>> named);

    std::string model_;
    std::string pre_;
    std::vector<std::string> texts_;
    std::vector<TokenKind> kinds_;  // as long as texts_
    std::vector<float> scores_;     // as long as texts_, or empty
    std::vector<std::string> merges_;
    std::unordered_map<std::string_view, Token> by_text_;  // views into texts_
    std::vector<Token> ends_;                              // sorted, unique
    std::optional<Token> bos_, eos_, unk_, pad_;
    std::optional<bool> add_bos_, add_space_prefix_;
};

}  // namespace cellar
