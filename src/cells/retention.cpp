#include "cells/retention.h"

#include <algorithm>

namespace cellar {

Kept keep_checkpoint(std::vector<Checkpoint>& list, const Checkpoint& checkpoint, size_t most) {
    const auto at =
        std::lower_bound(list.begin(), list.end(), checkpoint.pos,
                         [](const Checkpoint& other, Pos pos) { return other.pos < pos; });
    if (at != list.end() && at->pos == checkpoint.pos) {
        *at = checkpoint;
        return {};
    }
    list.insert(at, checkpoint);
    if (list.size() <= most) return {true, false};
    list.erase(std::min_element(
        list.begin(), list.end(),
        [](const Checkpoint& a, const Checkpoint& b) { return a.serial < b.serial; }));
    return {true, true};
}

}  // namespace cellar
