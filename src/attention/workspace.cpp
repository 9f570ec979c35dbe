#include "attention/workspace.h"

#include <algorithm>

namespace cellar {
namespace {

constexpr size_t rounded(size_t n) {
    return (n + 15) / 16 * 16;
}

}  // namespace

void AttentionWorkspace::reserve(size_t n_sums, size_t n_scratch) {
    if (n_sums <= n_sums_ && n_scratch <= n_scratch_) return;
    // Growing a little more than asked lets a sequence that grows by a token a step come here
    // seldom.
    if (n_sums > n_sums_) n_sums_ = rounded(n_sums + n_sums / 4);
    n_scratch_ = std::max(n_scratch_, rounded(n_scratch));
    floats_.reset();
    floats_.reset(new (kAlignment) float[total()]);
}

}  // namespace cellar
