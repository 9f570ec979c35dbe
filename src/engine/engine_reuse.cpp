// What Engine does about prompts whose parts a session holds elsewhere.

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace cellar {
namespace {

// Whether a run stands elsewhere, or behind tokens that are not held.
bool is_beginning(const CommonRun& run) {
    return run.from == 0 && run.to == 0;
}

// Takes out the shortest run but the beginning; false if there is no other.
bool drop_shortest(std::vector<CommonRun>& runs) {
    const size_t first = !runs.empty() && is_beginning(runs.front()) ? 1 : 0;
    const auto shortest =
        std::min_element(runs.begin() + static_cast<ptrdiff_t>(first), runs.end(),
                         [](const CommonRun& a, const CommonRun& b) { return a.n < b.n; });
    if (shortest == runs.end()) {
        return false;
    }
    runs.erase(shortest);
    return true;
}

// How many tokens stand in a row before the first that is missing.
size_t in_a_row(const std::vector<CommonRun>& runs) {
    size_t end = 0;
    for (const CommonRun& run : runs) {
        if (run.to > end) {
            break;
        }
        end = run.to + run.n;
    }
    return end;
}

}  // namespace

bool Engine::reuses(const Request& request) const {
    return request.reuse_chunks > 0 && request.session && decoder_.memory().can_shift();
}

// Pages that the request's text may need beyond those of its tokens in a row.
uint64_t Engine::spare_pages(const Request& request, bool shifts) const {
    const Session* session = request.session ? &sessions_.at(*request.session) : nullptr;
    const bool shifted = shifts || (session != nullptr && session->shifted);
    const bool moved = reuses(request) || (session != nullptr && session->moved);
    return uint64_t{shifted ? kShiftPages : 0} + (moved ? kReusePages : 0);
}

// Makes the session's sequence a beginning of the prompt, as long as it can be with what it holds,
// and keeps on a fork what is to come later. With fewer runs if the memory refuses all of them.
void Engine::reuse(Task& task, Session& session) {
    auto runs = common_runs(session.tokens, task.tokens, task.request.reuse_chunks, kReuseJoints);
    while (std::any_of(runs.begin(), runs.end(), [](auto& run) { return !is_beginning(run); })) {
        if (fork_runs_of(task, session, runs)) {
            task.moved = true;
            return;
        }
        drop_shortest(runs);
    }
    task.n_computed = session.rewind_to(task.tokens, decoder_.memory());
    task.usage.cached = static_cast<uint32_t>(task.n_computed);
}

// False, and nothing has changed, if the memory cannot or has no text free for the fork.
bool Engine::fork_runs_of(Task& task, Session& session, const std::vector<CommonRun>& runs) {
    Memory& memory = decoder_.memory();
    if (!scheduler_.take_text()) {
        return false;
    }
    const SeqId fork = take_seq();
    task.fork = fork;
    const size_t begun = in_a_row(runs);
    if (!fork_runs(memory, session.seq, fork, runs) || joints(memory, fork, runs) > kReuseJoints ||
        !memory.can_rm(fork, static_cast<Pos>(begun), kOpen) ||
        !memory.seq_cp(fork, session.seq, 0, kOpen)) {
        drop_fork(task);
        return false;
    }
    // Not refused: the sequence is what the fork was when it was asked.
    (void)memory.seq_rm(session.seq, static_cast<Pos>(begun), kOpen);
    task.n_computed = begun;
    task.usage.cached = static_cast<uint32_t>(begun);
    task.runs = runs;
    const auto later = std::find_if(task.runs.begin(), task.runs.end(),
                                    [&](const CommonRun& run) { return run.to > begun; });
    task.runs.erase(task.runs.begin(), later);
    take_runs(task);
    return true;
}

// Takes back the runs that the text has come to. What the memory refuses is computed instead.
void Engine::take_runs(Task& task) {
    if (!task.fork) {
        return;
    }
    Memory& memory = decoder_.memory();
    while (!task.runs.empty() && task.due() == 0) {
        const CommonRun run = task.runs.front();
        const size_t end = run.to + run.n;
        if (!memory.seq_cp(*task.fork, *task.seq, static_cast<Pos>(run.to),
                           static_cast<Pos>(end))) {
            return drop_fork(task);
        }
        task.n_computed = end;
        task.usage.cached += static_cast<uint32_t>(run.n);
        task.runs.erase(task.runs.begin());
    }
    if (task.runs.empty()) {
        return drop_fork(task);
    }
    // So that nobody else sees what the sequence has and appends to.
    if (!memory.seq_rm(*task.fork, 0, static_cast<Pos>(task.n_computed))) {
        drop_fork(task);
    }
}

void Engine::drop_fork(Task& task) {
    task.runs.clear();
    if (task.fork) {
        forget(*task.fork);
        free_seqs_.push_back(*task.fork);
        scheduler_.give_text();
        task.fork.reset();
    }
}

}  // namespace cellar
