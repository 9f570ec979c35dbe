// Remembers the most that was asked for: through an operator new of our own, in a file of its own
// so that nobody's allocations are inlined into it, or through the address sanitizer's hooks, whose
// operator new is not to be mixed with another.

#include "state/allocations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
// GCC does not bring the header that has it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
#endif

namespace {

size_t g_greatest = 0;

#if defined(__SANITIZE_ADDRESS__)
void saw_allocation(const volatile void*, size_t size) {
    g_greatest = std::max(g_greatest, size);
}
void saw_free(const volatile void*) {
}
[[maybe_unused]] const int g_hooks =
    __sanitizer_install_malloc_and_free_hooks(saw_allocation, saw_free);
#endif

}  // namespace

#if !defined(__SANITIZE_ADDRESS__)
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
#endif

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
