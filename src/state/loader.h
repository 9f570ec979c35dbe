#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "memory/memory.h"
#include "state/identity.h"
#include "state/saving.h"
#include "state/source.h"

namespace cellar {

struct LoadStateOptions {
    // Which saved sequence becomes which one here: {saved, here}. None: all of them, under the ids
    // that they had.
    std::vector<std::pair<SeqId, SeqId>> seqs = {};
    // The state's only sequence becomes this one, whatever its id was; in the place of `seqs`.
    std::optional<SeqId> into = {};
    std::vector<uint32_t> groups = {};  // the groups to load; none: all that were saved
    bool convert = false;               // keys and values of another type are converted
    StateProgress progress = {};        // may be empty
    // What this memory would not have kept of windows and states goes at once, not with the next
    // token: what a sequence stands on then is what one that was computed here would. Until then
    // all that was saved needs room.
    bool trim = false;
};

struct LoadedSequence {
    SeqId saved{0};
    SeqId seq{0};
    std::vector<Token> tokens;  // as they were saved
};

// Loads sequences of a state into a memory, in the place of what these held; cells that several of
// them see are shared again. Page size, buffers, attention and what else the memory holds may be
// other than when it was saved. All is checked before anything is visible: on error every sequence
// is as it was. Takes memory for the head and one chunk.
//
// Groups that are not loaded keep what they hold up to the position where the loaded ones end.
//
// Errors: kBadFile for damage, kUnsupported for another version, model, shape or (unless they may
// be converted) types of keys and values, each with a sentence of its own; kBadRange for sequences
// or groups that the state does not have; kNoRoom, kBusy and kForgotten as Loading::begin; kIo;
// kCancelled.
Result<std::vector<LoadedSequence>> load_state(Memory& memory, const Identity& identity,
                                               Source& source, const LoadStateOptions& options);

}  // namespace cellar
