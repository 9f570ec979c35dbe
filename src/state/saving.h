#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/error.h"
#include "memory/memory.h"
#include "state/head.h"
#include "state/identity.h"
#include "state/sink.h"

namespace cellar {

// Told which part of the keys and values is done, from 0 to 1. Returning false cancels.
using StateProgress = std::function<bool(double part)>;

// A sequence that is to be saved, and the tokens that its text consists of: the memory knows none.
// They are handed back as they are when it is loaded.
struct SequenceToSave {
    SeqId seq{0};
    std::span<const Token> tokens = {};
};

struct SaveOptions {
    std::vector<uint32_t> groups = {};  // the groups to save (windows only, say); none: all
    bool compress = false;              // zstd, where it makes chunks smaller
    StateProgress progress = {};        // may be empty; it must not change the memory
};

// Sequences of a memory about to be written: cells that several of them see once.
//
//   auto saving = Saving::begin(memory, identity, {{{SeqId{0}, tokens}}}, {});
//   ...saving->size() bytes will come...
//   saving->write(sink);
//
// The memory must not change between the two.
class Saving {
public:
    // No sequences: all that hold something. Errors: kBusy while a plan or a load is open or moves
    // are pending (apply them first), kBadRange for a group that is not there,
    // kInvalidArgument for a sequence that is none or named twice. O(pool + cells).
    static Result<Saving> begin(const Memory& memory, const Identity& identity,
                                std::span<const SequenceToSave> seqs, SaveOptions options);

    // Bytes that `write` writes: exactly, but with `compress` at most.
    uint64_t size() const;

    // Writes the state and finishes the sink. Takes memory for the head and one chunk. Errors:
    // what the sink says, kCancelled.
    Result<void> write(Sink& sink) const;

private:
    // Cells [first, +count) stand in rows [row, +count) of the pool.
    struct Rows {
        uint32_t first = 0;
        uint32_t row = 0;
        uint32_t count = 0;
    };
    class Gatherer;

    Saving(const Memory& memory, SaveOptions options)
        : memory_(&memory), options_(std::move(options)) {}
    std::vector<PoolRows> rows_of(const StatePiece& piece) const;

    const Memory* memory_;
    SaveOptions options_;
    StateHead head_;
    std::vector<std::vector<Rows>> rows_;  // by group, ascending
};

}  // namespace cellar
