#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "attention/tile.h"

namespace cellar {

constexpr float kLog2E = 1.44269504f;  // scores are binary logarithms: 2^x is cheaper than e^x
constexpr float kUnseen = -1e30f;      // below every score, and finite: its differences are no NaN

// Pieces of a preallocated scratch, each aligned to 64 bytes.
struct Arena {
    float* next;

    static constexpr size_t rounded(size_t n_floats) { return (n_floats + 15) / 16 * 16; }

    template <class T>
    static constexpr size_t floats(size_t n) {
        return rounded((n * sizeof(T) + sizeof(float) - 1) / sizeof(float));
    }

    template <class T>
    T* take(size_t n) {
        T* taken = reinterpret_cast<T*>(next);
        next += floats<T>(n);
        return taken;
    }
};

// The rows of a pool that columns stand in, one after another.
class RunWalker {
public:
    // `column` may be the end of `runs`; then there is no next.
    RunWalker(std::span<const RowRun> runs, uint32_t column) : run_(runs.data()) {
        const RowRun* const end = runs.data() + runs.size();
        while (run_ != end && column >= run_->count)
            column -= (run_++)->count;
        in_run_ = column;
    }

    uint32_t next() {
        if (in_run_ == run_->count) {
            run_++;
            in_run_ = 0;
        }
        return run_->row + in_run_++;
    }

private:
    const RowRun* run_;
    uint32_t in_run_ = 0;
};

// Where a task's bias for a head and distance stands.
inline size_t bias_index(const TileTask& task, size_t head, Pos distance) {
    const auto width = size_t{2} * static_cast<size_t>(task.reach) + 1;
    return head * width +
           static_cast<size_t>(std::clamp(distance, -task.reach, task.reach) + task.reach);
}

// A query's values in one head of the task, [k.head_dim].
inline const float* query_values(const TileTask& task, const TileQuery& query, size_t head) {
    return task.q + query.row * task.q_stride + head * task.k.head_dim;
}

// Of the columns [first, last) those that some query sees; none if the first of the result is not
// less than the second.
inline std::pair<uint32_t, uint32_t> seen_columns(std::span<const TileQuery> queries,
                                                  uint32_t first, uint32_t last) {
    uint32_t begin = last, end = first;
    for (const TileQuery& query : queries) {
        begin = std::min(begin, std::max(query.begin, first));
        end = std::max(end, std::min(query.end, last));
    }
    return {begin, end};
}

}  // namespace cellar
