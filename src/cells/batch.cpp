#include "cells/batch.h"

#include <algorithm>
#include <cassert>

namespace cellar {

void Batch::add(Token token, std::span<const SeqId> seqs, Pos pos, bool output) {
    // A next position is resolved when the batch is prepared; its components then all equal it.
    positions_.insert(positions_.end(), n_pos_, pos);
    tokens_.push_back(token);
    seqs_.insert(seqs_.end(), seqs.begin(), seqs.end());
    seq_begin_.push_back(static_cast<uint32_t>(seqs_.size()));
    output_.push_back(output ? 1 : 0);
}

void Batch::add_at(Token token, std::span<const SeqId> seqs, std::span<const Pos> components,
                   bool output) {
    assert(components.size() == n_pos_);
    add(token, seqs, components[0], output);
    std::copy(components.begin(), components.end(), positions_.end() - n_pos_);
}

void Batch::name_content(const ContentKey& key) {
    assert(!empty() && is_embedding(size() - 1));
    keys_.resize(size());
    keys_.back() = key;
}

void Batch::add_checkpoint() {
    assert(!empty());
    if (!is_checkpoint(size() - 1)) checkpoints_.push_back(size() - 1);
}

void Batch::clear() {
    checkpoints_.clear();
    keys_.clear();
    tokens_.clear();
    positions_.clear();
    seqs_.clear();
    seq_begin_.resize(1);
    output_.clear();
}

bool Batch::same_seqs(size_t a, size_t b) const {
    const auto x = seqs(a), y = seqs(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

}  // namespace cellar
