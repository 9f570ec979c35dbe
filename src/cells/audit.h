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

// As audit, for who does not know the Holds: takes the pools' word for how many keepers each page
// has. Cells asserts this after every verb in debug builds.
std::optional<std::string> audit_trusting_keepers(const Cells& cells);

}  // namespace cellar
