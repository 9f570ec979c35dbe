#pragma once

#include <cstdint>

#include "base/error.h"
#include "state/head.h"
#include "state/source.h"

namespace cellar {

// What a state says of itself, and whether all of it is what its checksums say.
struct StateInspection {
    StateHead head;
    uint64_t bytes = 0;        // of the state; up to the damage if there is any
    uint64_t bytes_cells = 0;  // of keys and values, uncompressed
    Result<void> verified;     // kBadFile where it is damaged behind its head
};

// Reads all of a state, into no memory. Errors: kBadFile for what is no state or has a damaged
// head, kUnsupported for another version, kIo.
Result<StateInspection> inspect_state(Source& source);

}  // namespace cellar
