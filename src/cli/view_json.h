#pragma once

#include "cells/view.h"
#include "cli/replayer.h"

namespace cellar::cli {

// All of a snapshot, a group each: totals, pages that somebody holds, sequences with their spans.
Answer to_json(const CellsView& view);

// A group's totals, and what each sequence holds of it.
Answer summary(const GroupView& group);

}  // namespace cellar::cli
