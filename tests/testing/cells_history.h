#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cells/cells.h"
#include "testing/cells_model.h"

namespace cellar::testing {

// One step of a history, as raw numbers, so that it can be drawn at random, shrunk and read from a
// fuzzer's bytes. What a number means depends on the verb; every value is legal.
struct Step {
    uint8_t verb = 0;
    uint8_t a = 0;
    uint8_t b = 0;
    int16_t p0 = 0;
    int16_t p1 = 0;
    int16_t d = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step);

struct HistoryConfig {
    std::vector<uint32_t> group_cells = {512};
    uint32_t page_size = 32;
    uint32_t n_pos = 1;
    int n_seqs = 6;
    uint32_t grow_step = 0;
    std::vector<GroupKind> kinds = {};
    uint32_t n_rollback = 0;
    uint32_t max_checkpoints = 0;
    uint32_t max_checkpoints_all = UINT32_MAX;
};

// A memory made of Cells and, instead of tensors, one number a cell: the token that was written; a
// state is a number that depends on all tokens that it has taken up.
// After each step every sequence must see, in every group, exactly the positions and tokens that
// the naive model says; cells that nobody sees are overwritten (the poison rule), and the counts
// are audited.
class CellsHistory {
public:
    explicit CellsHistory(const HistoryConfig& config);

    // What contradicts the model after this step, or nothing.
    std::optional<std::string> apply(const Step& step);

    // After removing everything, no page may be held.
    std::optional<std::string> finish();

    const Cells& cells() const { return cells_; }
    uint64_t refused() const { return refused_; }  // steps that answered an error

private:
    using Finding = std::optional<std::string>;

    Finding append(const Step& step);
    Finding append_coupled(const Step& step);
    Finding run(const Batch& batch, const SplitOptions& options, size_t abort_after);
    Finding verb(const Step& step);
    Finding care(const Step& step);
    void compute(const Batch& batch, const UbatchPlan& ubatch, uint32_t group);
    Finding check_rollback(const Batch& batch) const;
    Finding check_states(uint32_t group, int seq,
                         const std::vector<std::pair<Pos, int>>& entries) const;
    Finding check_window(uint32_t group, int seq,
                         const std::vector<std::pair<Pos, int>>& entries) const;
    bool may_refuse(const Result<void>& result) const;
    uint32_t page_size(uint32_t group) const { return cells_.pool(group).page_size(); }
    bool slides() const;
    void make_moves();
    void poison();
    Finding compare() const;
    Finding judge(const Result<void>& result, bool legal);
    bool same_cells(int a, int b) const;

    const HistoryConfig config_;
    Cells cells_;
    CellsModel model_;
    std::vector<std::vector<int>> contents_;  // by group, by cell: the token written there
    std::vector<Hold> kept_;
    std::vector<std::vector<int>> kept_contents_;  // of each Hold, when it was made
    int next_token_ = 0;
    uint64_t refused_ = 0;
};

}  // namespace cellar::testing
