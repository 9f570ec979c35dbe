#include "engine/chunk_reuse.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace cellar {
namespace {

Pos pos(size_t at) {
    return static_cast<Pos>(at);
}

// Removes what lies between the runs, last first, so that a tail that must stay is known at once.
Result<void> remove_others(Memory& memory, SeqId seq, std::span<const CommonRun> runs) {
    Pos end = kOpen;
    for (size_t i = runs.size(); i-- > 0;) {
        if (auto removed = memory.seq_rm(seq, pos(runs[i].from + runs[i].n), end); !removed) {
            return removed;
        }
        end = pos(runs[i].from);
    }
    return memory.seq_rm(seq, 0, end);
}

Result<void> move(Memory& memory, SeqId seq, const CommonRun& run) {
    return memory.seq_add(seq, pos(run.from), pos(run.from + run.n), pos(run.to) - pos(run.from));
}

// First those that move down, from the first on, then those that move up, from the last on: so no
// run is moved onto another.
Result<void> move_all(Memory& memory, SeqId seq, std::span<const CommonRun> runs) {
    for (const CommonRun& run : runs) {
        if (run.to < run.from) {
            if (auto moved = move(memory, seq, run); !moved) {
                return moved;
            }
        }
    }
    for (size_t i = runs.size(); i-- > 0;) {
        if (runs[i].to > runs[i].from) {
            if (auto moved = move(memory, seq, runs[i]); !moved) {
                return moved;
            }
        }
    }
    return {};
}

// Whether tokens are missing right before position `at`.
bool behind_gap(Pos at, std::span<const CommonRun> runs) {
    size_t end = 0;
    for (const CommonRun& run : runs) {
        if (pos(run.to) == at) {
            return run.to > end;
        }
        end = run.to + run.n;
    }
    return false;
}

}  // namespace

Result<void> fork_runs(Memory& memory, SeqId seq, SeqId fork, std::span<const CommonRun> runs) {
    Result<void> done = memory.seq_cp(seq, fork, 0, kOpen);
    if (done) {
        done = remove_others(memory, fork, runs);
    }
    if (done) {
        done = move_all(memory, fork, runs);
    }
    if (!done) {
        (void)memory.seq_rm(fork, 0, kOpen);  // whole sequences can always be removed
    }
    return done;
}

uint32_t joints(const Memory& memory, SeqId seq, std::span<const CommonRun> runs) {
    const Cells& cells = memory.cells();
    uint32_t most = 0;
    for (uint32_t group = 0; group < cells.n_groups(); group++) {
        const std::span<const Span> spans = cells.spans(seq, group);
        const bool begins = spans.empty() || spans[0].first == 0 || cells.lets_go(group);
        uint32_t n = begins && !behind_gap(memory.seq_pos_min(seq), runs) ? 0 : 1;
        for (size_t i = 1; i < spans.size(); i++) {
            const bool follows = spans[i - 1].end() == cells.page_size() && spans[i].first == 0;
            n += !follows || behind_gap(cells.pos(group, spans[i], 0), runs) ? 1 : 0;
        }
        most = std::max(most, n);
    }
    return most;
}

}  // namespace cellar
