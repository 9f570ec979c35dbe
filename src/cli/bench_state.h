#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "cli/bench_run.h"
#include "engine/decoder.h"
#include "state/identity.h"

namespace cellar::cli {

// What a state file costs beside copying it and beside computing the sequence anew. Seconds are
// medians, but for `compute_s`.
struct StateTimes {
    uint64_t bytes = 0;   // of the file
    double copy_s = 0.0;  // copying the file, as cp does
    double save_s = 0.0;  // nothing synced to the disk, as cp does not
    double load_s = 0.0;
    double answer_s = 0.0;   // loading, then computing the last token's logits
    double compute_s = 0.0;  // computing all tokens, to the last one's logits
};

// The memory that time_state needs, as work.
BenchWork state_work(const BenchWork& work);

// Saves a sequence of `depth + prompt` tokens to a new file in `folder`, copies the file, loads it,
// some times in turns, and removes what it wrote. The decoder's memory is empty.
Result<StateTimes> time_state(Decoder& decoder, const BenchWork& work, uint32_t n_vocab,
                              const Identity& identity, const std::string& folder);

}  // namespace cellar::cli
