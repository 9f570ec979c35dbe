#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "cells/batch.h"
#include "cells/plan.h"
#include "memory/memory.h"
#include "model/attention_parts.h"
#include "model/model.h"

namespace cellar {

enum class Flash { kAuto, kOn, kOff };

struct StepperOptions {
    uint32_t n_threads = 1;     // 1 to 512
    uint32_t max_ubatch = 512;  // items a step may have; more than the memory's cells are never met
    AttentionChoice attention = AttentionChoice::kAuto;
    Flash flash = Flash::kAuto;  // of the graph path; kAuto: where the backend has it
    bool cascade = true;         // of the kernel: what sequences share is read once for all of them
};

// Logits of one step: a row for each item with `output`, in the order of UbatchPlan::items.
struct Logits {
    std::span<const float> values;    // [n_rows, n_vocab], valid until the next step
    std::span<const uint32_t> items;  // [n_rows] the batch item that each row belongs to
    uint32_t n_vocab = 0;

    std::span<const float> row(size_t i) const { return values.subspan(i * n_vocab, n_vocab); }
};

// Counts since the start, exact.
struct StepperStats {
    uint64_t steps = 0;
    uint64_t graphs_built = 0;
    // In one layer of each group: pairs of a query and a cell that it sees, and distinct cells.
    uint64_t attended_cells = 0;
    uint64_t read_cells = 0;
};

// Computes ubatches of a plan: builds or reuses the graph of this shape, runs it. Owns the compute
// buffers and threads. The model and memory must outlive it.
class Stepper {
public:
    // Reserves buffers for the largest step of one stream of sequences. Errors: kInvalidArgument
    // for a count out of range, kUnsupported for an operation that the backend lacks, for memory
    // that it cannot reach, and for the kernel where it cannot read; kBackend if allocation fails.
    static Result<std::unique_ptr<Stepper>> create(const Model& model, Memory& memory,
                                                   const StepperOptions& options);
    ~Stepper();

    // Whether every item is a token of the model's vocabulary. Errors: kInvalidArgument.
    Result<void> check(const Batch& batch) const;

    // Does the moves that verbs left pending in the memory, keys turned, before its next `prepare`.
    // Errors: kBackend; then they are pending still, and no sequence's keys have changed.
    Result<void> apply_pending();

    // Computes ubatch `i` of a plan for `batch`: the next to commit, its moves applied. Commit it
    // to keep it. Errors: kStale for another `i` or a plan that is not open, kInvalidArgument as
    // `check`, kBadRange for a position (of this ubatch or a later one) that the model has no
    // embedding for, kBackend; then nothing has become visible.
    Result<Logits> compute(const Batch& batch, const Plan& plan, size_t i);

    const StepperStats& stats() const;
    uint64_t compute_bytes() const;  // of activations, scratch and inputs

private:
    struct Impl;
    explicit Stepper(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace cellar
