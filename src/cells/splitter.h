#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"

namespace cellar {

// How a batch is cut into ubatches.
enum class Splitting {
    kSimple,       // in the order of the batch
    kEqual,        // the same number of items for each sequence of a ubatch
    kPerSequence,  // one sequence (or coupled set) a ubatch
};

struct SplitOptions {
    Splitting splitting = Splitting::kSimple;
    uint32_t max_ubatch = 512;     // items in one ubatch
    bool whole_sequences = false;  // non-causal or pooled: a sequence's items stay in one ubatch
};

// For each item of a batch the sequences that it extends, numbered 0.. as they first occur.
struct ItemSets {
    std::vector<uint32_t> begin;  // [n_items + 1] where an item's sequences begin in `seqs`
    std::vector<uint32_t> seqs;
    uint32_t n_seqs = 0;
    std::vector<bool> last = {};  // [n_items], or none: items that must be their sequences' last
                                  // of a ubatch

    bool ends(uint32_t item) const { return !last.empty() && last[item]; }
    uint32_t n_items() const { return static_cast<uint32_t>(begin.size()) - 1; }
    std::span<const uint32_t> of(uint32_t item) const {
        return std::span<const uint32_t>(seqs).subspan(begin[item], begin[item + 1] - begin[item]);
    }
};

// Ubatches as lists of items: every item in exactly one, the items of a sequence in their order.
// Errors: kInvalidArgument when whole sequences are asked for and one has more items than fit.
Result<std::vector<std::vector<uint32_t>>> split(const ItemSets& sets, const SplitOptions& options);

}  // namespace cellar
