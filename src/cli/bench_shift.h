#pragma once

#include <cstdint>

#include "base/error.h"
#include "cli/bench_run.h"
#include "engine/decoder.h"

namespace cellar::cli {

// What a shift costs the steps after it: medians of decoding one token.
struct ShiftTimes {
    double before_s = 0.0;  // a sequence whose keys stand where they were encoded
    double after_s = 0.0;   // one of as many cells, nearly all of which were moved
};

// The sequences that time_shift needs, as work: each of depth and prompt, and of some cells that
// are removed so that others move.
BenchWork shift_work(const BenchWork& work);

// Decodes `work.gen` tokens on each of two sequences that hold `depth + prompt` cells, in turns, on
// a decoder whose memory is empty.
Result<ShiftTimes> time_shift(Decoder& decoder, const BenchWork& work, uint32_t n_vocab);

}  // namespace cellar::cli
