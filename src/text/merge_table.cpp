#include "text/merge_table.h"

#include <algorithm>

namespace cellar {

MergeTable::MergeTable(size_t count)
    : slots_(std::bit_ceil(std::max<size_t>(2 * count, 2))),
      mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())) {
}

void MergeTable::add(Token left, Token right, Merge merge) {
    const uint64_t key = key_of(left, right);
    Slot& slot = slots_[locate(key)];
    if (slot.key == kFree) slot = {key, merge};
}

}  // namespace cellar
