#pragma once

#include <optional>
#include <span>
#include <string>

#include "cells/cells.h"

namespace cellar {

// Checks the bookkeeping against itself: walks every sequence and pending move, counts holders of
// each page by the end that they see, and compares with what the pools say; checks that spans lie
// within their pages' fill, do not fall in position, add up to their cell counts, and that live +
// cached + free pages make the pool. No plan may be open; `kept` are all Holds there are. Returns
// the first contradiction, or nothing. O(pool + spans).
std::optional<std::string> audit(const Cells& cells, std::span<const Hold> kept = {});

}  // namespace cellar
