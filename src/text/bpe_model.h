#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "text/merge_table.h"
#include "text/vocab.h"

namespace cellar {

// What byte-level BPE knows about a vocabulary: the token of each byte, and which merge into which.
// No word becomes a control token through it. Constant after construction.
class BpeModel {
public:
    // `merges` as in VocabData. Errors: kBadFile if one is not two tokens that make a third, or if
    // the vocabulary has no token for any single byte.
    static Result<BpeModel> create(const Vocab& vocab, std::span<const std::string> merges);

    // -1 if the vocabulary cannot spell this byte. Vocabularies learned from text often lack bytes
    // that UTF-8 never has, and rare control characters (SmolLM2: U+0004, U+0006, ...).
    Token byte_token(uint8_t byte) const { return byte_tokens_[byte]; }

    const MergeTable& merges() const { return merges_; }

private:
    explicit BpeModel(size_t merges) : merges_(merges) {}

    std::array<Token, 256> byte_tokens_{};
    MergeTable merges_;
};

// Encodes words with a BpeModel: one thread's working space. Borrows the model.
class WordEncoder {
public:
    explicit WordEncoder(const BpeModel& model) : model_(model) {}

    // Appends the tokens of `word`. A byte that the vocabulary cannot spell is left out, as
    // llama.cpp and Hugging Face do. O(n log n) time and 24 bytes of memory for each byte, of which
    // no more than kLongestWord are merged as one.
    void encode(std::string_view word, std::vector<Token>& tokens);

    // 16 MiB: beyond that, what a merge at one end does to the other end is worth no memory.
    static constexpr size_t kLongestWord = size_t{1} << 24;

private:
    // A part of the word in a list of neighbours. Merging keeps the left one and unlinks the right.
    struct Symbol {
        Token token;  // -1: cannot be spelled; kMerged: part of an earlier symbol
        uint32_t previous;
        uint32_t next;
    };

    void encode_part(std::string_view part, std::vector<Token>& tokens);
    void spell(std::string_view part);
    const Merge* merge_after(uint32_t left) const;
    void consider(uint32_t left);
    void merge_all();
    void merge(uint32_t left, Token made);

    const BpeModel& model_;
    std::vector<Symbol> symbols_;
    // (rank << 32 | index of the left symbol): a heap, the lowest first, so that among equal ranks
    // the leftmost is first. Entries are not withdrawn; one whose pair has changed is passed over.
    std::vector<uint64_t> candidates_;
};

}  // namespace cellar
