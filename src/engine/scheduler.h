#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/types.h"
#include "engine/common_runs.h"
#include "engine/request.h"
#include "engine/sampler.h"

namespace cellar {

// A request on its way through the engine.
struct Task {
    Task(RequestId id_, Request request_, Sampler sampler_);

    bool wants_more() const { return usage.generated < max_tokens; }
    // It writes, and all but its newest token is computed: the next step gives it a token.
    bool decoding() const { return usage.generated > 0 && left() == 1; }
    size_t left() const { return tokens.size() - n_computed; }
    // To compute before anything else: all that is left, or what stands before the next run.
    size_t due() const { return runs.empty() ? left() : runs.front().to - n_computed; }

    RequestId id;
    Request request;
    uint32_t max_tokens;
    Sampler sampler;
    std::optional<SeqId> seq;     // once it runs
    uint64_t cells = 0;           // in whole pages: what its longest possible text needs
    std::vector<Token> tokens;    // the prompt, then what was generated
    size_t n_computed = 0;        // of tokens: those that the memory holds
    std::optional<SeqId> fork;    // holds `runs`, see chunk_reuse.h
    std::vector<CommonRun> runs;  // to be taken back when n_computed has come to them, in order
    bool moved = false;           // some of its tokens were moved here by a reuse
    Usage usage;
};

// Decides what each step computes. Every running task has the cells of its longest possible text
// set aside, and one of the texts that windows and states have room for, so that no step runs out
// of room halfway; others wait, in order of arrival.
class Scheduler {
public:
    // Work for one task in one step.
    struct Pick {
        Task* task = nullptr;
        size_t count = 0;  // of task->tokens, from n_computed on
    };

    // `n_cells`: of the pool, to be set aside in whole pages. `n_texts`: sequences with tokens that
    // there may be, a task's or a session's or others.
    Scheduler(uint64_t n_cells, uint32_t page_size, size_t n_texts = SIZE_MAX)
        : free_(n_cells), free_texts_(n_texts), page_size_(page_size) {}

    // Queues a task whose text will need at most `cells`.
    void add(std::unique_ptr<Task> task, uint64_t cells);

    // The task to run next, if its cells are free beside `held` cells that it has already, and a
    // text unless it has some: it joins the running ones. Null when none waits or the first does
    // not fit.
    Task* admit(uint64_t held);

    // The first of the tasks that wait, or null.
    Task* next() const { return waiting_.empty() ? nullptr : waiting_.front().get(); }

    // Up to `budget` tokens. First one of each decoding task, taking turns when they are more than
    // the budget; then prompts, first come first served. So a long prompt never halts the others.
    std::vector<Pick> pick(size_t budget);

    // Takes a task out, running or waiting. Of a running one's cells, `kept` stay set aside, and
    // its text if there are any.
    void remove(RequestId id, uint64_t kept);

    // Sets aside the cells of a text and the text, or frees what this or a removal kept. Both must
    // be free; no cells are no text.
    void set_aside(uint64_t cells);
    void give_back(uint64_t cells);

    // Sets aside a text whose cells are counted elsewhere; false if none is free. And frees it.
    bool take_text();
    void give_text() { free_texts_++; }

    Task* find(RequestId id) const;
    bool empty() const { return waiting_.empty() && running_.empty(); }
    bool any_running() const { return !running_.empty(); }
    uint64_t free_cells() const { return free_; }
    size_t free_texts() const { return free_texts_; }
    uint64_t in_pages(uint64_t cells) const {
        return (cells + page_size_ - 1) / page_size_ * page_size_;
    }

private:
    uint64_t free_;      // cells set aside for nobody
    size_t free_texts_;  // n_texts less the sequences with tokens; at SIZE_MAX they never run out
    uint32_t page_size_;
    size_t turn_ = 0;  // index into running_ of the decoding task to serve first
    std::deque<std::unique_ptr<Task>> waiting_;
    std::vector<std::unique_ptr<Task>> running_;  // in order of arrival
};

}  // namespace cellar
