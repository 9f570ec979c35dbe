#pragma once

#include <vector>

#include "base/types.h"
#include "cells/retention.h"
#include "cells/track.h"

namespace cellar {

// What one sequence sees, and where it can go back to.
struct Sequence {
    std::vector<Track> tracks;            // by group
    std::vector<Checkpoint> checkpoints;  // ascending positions, each once
};

}  // namespace cellar
