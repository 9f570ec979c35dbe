#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/decoder.h"

namespace cellar::cli {

// The middle one of `values`, the greater of two; not empty.
double median(std::vector<double> values);

// What is measured.
struct BenchWork {
    uint32_t prompt = 512;  // tokens of each prompt
    uint32_t gen = 128;     // tokens that each sequence decodes
    uint32_t seqs = 1;
    uint32_t depth = 0;   // cells filled before
    bool shared = false;  // depth and prompt computed once, then forked

    uint64_t prompt_tokens() const { return uint64_t{prompt} * (shared ? 1 : seqs); }
    uint64_t gen_tokens() const { return uint64_t{gen} * seqs; }

    // Cells that the work needs in whole pages. Errors: kBadRange for more than a memory can have.
    Result<uint32_t> cells_needed(uint32_t page_size) const;
};

// What it took. Counts are of the measured part.
struct BenchTimes {
    double prompt_s = 0.0;
    double gen_s = 0.0;
    uint64_t attended_cells = 0;
    uint64_t read_cells = 0;
    uint64_t graphs_built = 0;
    uint64_t cells = 0;  // of the memory: each full group's
};

// Does the work on a decoder whose memory is empty. Comparable with llama-batched-bench and
// llama-bench: prompts give logits for their last token, decode steps for every sequence.
class BenchRun {
public:
    BenchRun(Decoder& decoder, const BenchWork& work, uint32_t n_vocab)
        : decoder_(decoder),
          work_(work),
          n_vocab_(n_vocab),
          batch_(decoder.memory().config().n_pos) {}

    Result<BenchTimes> run();

private:
    Result<void> warm_up();
    Result<double> prefill(uint32_t n_tokens);
    Result<void> fork();
    Result<double> generate(uint32_t n_tokens);
    Result<double> decode();
    Token random_token();

    Decoder& decoder_;
    const BenchWork work_;
    const uint32_t n_vocab_;
    std::mt19937 random_{0};  // every run computes the same tokens
    Batch batch_;
};

}  // namespace cellar::cli
