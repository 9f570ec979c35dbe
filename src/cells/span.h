#pragma once

#include <cstdint>

#include "base/types.h"

namespace cellar {

// A page of one group's pool.
enum class PageId : uint32_t {};

inline constexpr PageId kNoPage{UINT32_MAX};

constexpr uint32_t value(PageId id) {
    return static_cast<uint32_t>(id);
}

// A run of neighbouring cells of one page, as a sequence sees them. Position of cell i of the page
// is what its key was encoded with, plus `delta`. Positions never fall within a span.
struct Span {
    PageId page = kNoPage;
    uint16_t first = 0;  // offset in the page
    uint16_t count = 0;  // never 0 in a sequence
    Pos delta = 0;       // what moved since the key was encoded

    uint16_t end() const { return static_cast<uint16_t>(first + count); }
    friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace cellar
