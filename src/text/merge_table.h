#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace cellar {

// What becomes of two neighbouring tokens.
struct Merge {
    uint32_t rank;  // of all merges possible in a word, the lowest rank is done first
    Token made;
};

// (left, right) -> Merge: a hash table with open addressing, since nearly all of encoding's time
// goes into this lookup. Constant after the last add.
class MergeTable {
public:
    // Room for `count` merges; adding more is a bug.
    explicit MergeTable(size_t count);

    // The first merge of a pair stays: a later one would have a higher rank.
    void add(Token left, Token right, Merge merge);

    // Null if the two do not merge. A negative token merges with nothing.
    const Merge* find(Token left, Token right) const {
        const Slot& slot = slots_[locate(key_of(left, right))];
        return slot.key == kFree ? nullptr : &slot.merge;
    }

private:
    static constexpr uint64_t kFree = ~uint64_t{0};  // the key of (-1, -1)

    struct Slot {
        uint64_t key = kFree;
        Merge merge{};
    };

    static uint64_t key_of(Token left, Token right) {
        return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    }

    // Where `key` is, or the free slot where it would be. At most half of the slots are taken.
    size_t locate(uint64_t key) const {
        constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / the golden ratio (Knuth)
        size_t at = static_cast<size_t>((key * kGolden) >> shift_);
        while (slots_[at].key != key && slots_[at].key != kFree)
            at = (at + 1) & mask_;
        return at;
    }

    std::vector<Slot> slots_;  // a power of two of them
    size_t mask_;
    int shift_;
};

}  // namespace cellar
