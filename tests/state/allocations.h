#pragma once

#include <cstddef>

namespace cellar::testing {

// The greatest single allocation by operator new, which this program counts, since the last
// `forget_allocations`.
size_t greatest_allocation();
void forget_allocations();

}  // namespace cellar::testing
