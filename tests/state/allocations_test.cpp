// An operator new that remembers the most that was asked for. In a file of its own, so that
// nobody's allocations are inlined into it.

#include "state/allocations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

size_t g_greatest = 0;

}  // namespace

void* operator new(size_t size) {
    g_greatest = std::max(g_greatest, size);
    if (void* memory = std::malloc(std::max<size_t>(size, 1))) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace cellar::testing {

size_t greatest_allocation() {
    return g_greatest;
}

void forget_allocations() {
    g_greatest = 0;
}

TEST(AllocationsTest, TheGreatestIsRemembered) {
    forget_allocations();
    const std::vector<char> big(10000), small(10);
    EXPECT_EQ(greatest_allocation(), 10000);
}

}  // namespace cellar::testing
