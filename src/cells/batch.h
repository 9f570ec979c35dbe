#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace cellar {

// In a batch: the position after the sequence's last one, counting the items before in the batch.
inline constexpr Pos kNextPos = -1;

// In a batch: an item that is an embedding and no token of the vocabulary.
inline constexpr Token kNoToken = -1;

// 128 bits that the caller derives from what an embedding encodes (image bytes and the encoder,
// say): equal keys mean equal embeddings.
struct ContentKey {
    uint64_t high = 0;
    uint64_t low = 0;

    friend bool operator==(const ContentKey&, const ContentKey&) = default;
};

// What stands in an item's cell, as far as prefixes can be compared. Cells keep none of it: whoever
// compares prefixes notes it from the batch whose ubatch was committed.
struct Content {
    Token token = kNoToken;
    std::optional<ContentKey> key;  // of an embedding, if the caller named it

    // Whether both are the same token, or embeddings under equal keys. One without a key matches
    // nothing, not even itself.
    bool matches(const Content& other) const {
        if (token != other.token) return false;
        return token != kNoToken || (key && key == other.key);
    }
};

// What a caller submits to be computed: items in the order in which their sequences grow. An item
// is a token (or an embedding row), the sequences that it extends, its position and whether its
// logits are wanted. A Batch is plain data: `Cells::prepare` judges it.
//
//   Batch batch;
//   batch.add(token, SeqId{0});                    // next position of sequence 0, no logits
//   batch.add(token, SeqId{0}, kNextPos, true);    // with logits
//   batch.add(token, std::array{SeqId{1}, SeqId{2}});  // one cell that two sequences see
//   batch.add(kNoToken, SeqId{0});                 // an embedding...
//   batch.name_content(key);                       // ...that prefixes may be matched by
//   batch.add_checkpoint();                        // what stands here can be gone back to
class Batch {
public:
    // `n_pos`: components of a position: 1, or up to 4 for M-RoPE (time, row, column, other).
    explicit Batch(uint32_t n_pos = 1) : n_pos_(n_pos) { seq_begin_.push_back(0); }

    void add(Token token, SeqId seq, Pos pos = kNextPos, bool output = false) {
        add(token, std::span<const SeqId>(&seq, 1), pos, output);
    }
    void add(Token token, std::span<const SeqId> seqs, Pos pos = kNextPos, bool output = false);

    // An item at a vector position; `components` has n_pos() numbers, the first is what verbs see.
    void add_at(Token token, std::span<const SeqId> seqs, std::span<const Pos> components,
                bool output = false);

    // Names what the last item's embedding encodes. It must be one: added with kNoToken.
    void name_content(const ContentKey& key);

    // After the last item, windows and states are kept: its sequences can go back there.
    void add_checkpoint();

    // Removes all items; keeps the room.
    void clear();

    size_t size() const { return tokens_.size(); }
    bool empty() const { return tokens_.empty(); }
    uint32_t n_pos() const { return n_pos_; }

    Token token(size_t i) const { return tokens_[i]; }
    bool is_embedding(size_t i) const { return tokens_[i] == kNoToken; }
    Content content(size_t i) const {
        return {tokens_[i], i < keys_.size() ? keys_[i] : std::nullopt};
    }
    bool output(size_t i) const { return output_[i] != 0; }
    bool is_checkpoint(size_t i) const {
        return std::binary_search(checkpoints_.begin(), checkpoints_.end(), i);
    }
    bool has_checkpoints() const { return !checkpoints_.empty(); }
    Pos pos(size_t i) const { return positions_[i * n_pos_]; }
    std::span<const Pos> components(size_t i) const {
        return std::span<const Pos>(positions_).subspan(i * n_pos_, n_pos_);
    }
    std::span<const SeqId> seqs(size_t i) const {
        return std::span<const SeqId>(seqs_).subspan(seq_begin_[i],
                                                     seq_begin_[i + 1] - seq_begin_[i]);
    }
    bool same_seqs(size_t a, size_t b) const;

private:
    uint32_t n_pos_;
    std::vector<Token> tokens_;
    std::vector<Pos> positions_;       // [size * n_pos]
    std::vector<SeqId> seqs_;          // of all items, one after the other
    std::vector<uint32_t> seq_begin_;  // [size + 1] where an item's sequences begin in seqs_
    std::vector<uint8_t> output_;
    std::vector<size_t> checkpoints_;              // items, ascending
    std::vector<std::optional<ContentKey>> keys_;  // up to the last item that has one
};

}  // namespace cellar
