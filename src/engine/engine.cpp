#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cellar {

Result<std::unique_ptr<Engine>> Engine::create(Decoder& decoder, const EngineOptions& options) {
    const uint32_t n_cells = decoder.memory().config().n_cells;
    if (options.n_ctx == 0 || options.n_ctx > n_cells) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a context of {} tokens does not fit a memory of {} cells",
                                options.n_ctx, n_cells));
    }
    if (decoder.max_texts() == 0) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a memory of {} states has too few for one text",
                                decoder.memory().config().n_states));
    }
    if (options.step_tokens == 0) {
        return fail(Code::kInvalidArgument, "a step must compute at least 1 token");
    }
    return std::unique_ptr<Engine>(new Engine(decoder, options));
}

Engine::Engine(Decoder& decoder, const EngineOptions& options)
    : options_(options),
      decoder_(decoder),
      scheduler_(decoder.memory().config().n_cells, decoder.memory().config().page_size,
                 decoder.max_texts()),
      batch_(decoder.memory().config().n_pos) {
}

Result<RequestId> Engine::submit(Request request) {
    if (Result<void> fine = check(request); !fine) {
        return pass(std::move(fine));
    }
    Result<Sampler> sampler = Sampler::create(request.sampling);
    if (!sampler) {
        return pass(std::move(sampler));
    }
    for (const Token token : request.prompt) {
        sampler->accept(token);
    }
    if (request.session) {
        sessions_.at(*request.session).busy = true;
    }
    const RequestId id{next_request_++};
    auto task = std::make_unique<Task>(id, std::move(request), *std::move(sampler));
    const uint64_t cells = cells_for(*task);
    scheduler_.add(std::move(task), cells);
    return id;
}

// What the task's longest possible text needs.
uint64_t Engine::cells_for(const Task& task) const {
    const uint64_t longest = uint64_t{task.usage.prompt} + task.max_tokens;
    const bool shifts = task.request.context_shift && longest > options_.n_ctx;
    return scheduler_.in_pages(std::min<uint64_t>(longest, options_.n_ctx)) +
           spare_pages(task.request, shifts) * decoder_.memory().config().page_size;
}

void Engine::cancel(RequestId id) {
    cancelled_.push_back(id);
}

const std::vector<Event>& Engine::step() {
    events_.clear();
    admit();
    const std::vector<Scheduler::Pick> picks = scheduler_.pick(options_.step_tokens);
    if (picks.empty()) {
        return events_;
    }
    batch_.clear();
    std::vector<size_t> pick_of;  // [batch_.size()]
    for (size_t i = 0; i < picks.size(); i++) {
        const auto [task, count] = picks[i];
        for (size_t k = task->n_computed; k < task->n_computed + count; k++) {
            const bool newest = k + 1 == task->tokens.size();
            batch_.add(task->tokens[k], *task->seq, kNextPos, newest && task->wants_more());
            pick_of.push_back(i);
        }
    }
    std::vector<std::optional<Result<Token>>> sampled(picks.size());
    const Result<size_t> computed =
        decoder_.decode(batch_, [&](size_t item, std::span<const float> logits) {
            const size_t i = pick_of[item];
            sampled[i] = picks[i].task->sampler.sample(logits);
        });

    for (size_t i = 0; i < picks.size(); i++) {
        if (computed) {
            advance(picks[i], sampled[i]);
        } else {
            end(*picks[i].task, computed.error());
        }
    }
    return events_;
}

// What a step changes before it computes: cancelled tasks leave, waiting ones join.
void Engine::admit() {
    for (const RequestId id : std::exchange(cancelled_, {})) {
        if (Task* task = scheduler_.find(id)) {
            end(*task, StopReason::kCancelled);
        }
    }
    while (Task* next = scheduler_.next()) {
        const auto& session = next->request.session;
        const uint64_t held_already = session ? sessions_.at(*session).cells : 0;
        if (scheduler_.admit(held_already)) {
            if (Result<void> begun = begin(*next); !begun) {
                end(*next, std::move(begun).error());
            }
        } else if (scheduler_.any_running()) {
            return;
        } else {
            // Only idle sessions stand in its way, and nothing here will ever remove them.
            end(*next, blocked(*next, held_already));
        }
    }
}

// Why a task that has `held` cells is not admitted.
Error Engine::blocked(const Task& task, uint64_t held) const {
    const uint64_t free = scheduler_.free_cells() + held;
    if (task.cells > free) {
        return {Code::kNoRoom,
                fmt::format("the request needs {} cells, but sessions leave only {} free",
                            task.cells, free),
                Room{task.cells, free, 0}};
    }
    return no_text("the request");
}

Error Engine::no_text(std::string_view who) const {
    const size_t most = decoder_.max_texts(), free = scheduler_.free_texts();
    return {Code::kNoRoom,
            fmt::format("{} needs a sequence, but requests and sessions leave {} free of the {} "
                        "that the memory has room for",
                        who, free, most),
            Room{1, free, 0}};
}

Result<void> Engine::begin(Task& task) {
    if (!task.request.session) {
        task.seq = take_seq();
        return {};
    }
    Session& session = sessions_.at(*task.request.session);
    task.seq = session.seq;
    if (reuses(task.request) && task.tokens.size() <= options_.n_ctx) {
        reuse(task, session);
        return {};
    }
    task.n_computed = session.rewind_to(task.tokens, decoder_.memory());
    task.usage.cached = static_cast<uint32_t>(task.n_computed);
    const size_t more = task.left();
    if (task.tokens.size() <= options_.n_ctx) {
        return {};
    }
    const size_t most = options_.n_ctx - std::min<size_t>(more, options_.n_ctx);
    const auto n = tokens_to_drop(task.n_computed, task.request.context_shift.value_or(0), most);
    if (!n) {
        // The session could not be rewound, and so there is nothing to drop.
        return fail(Code::kBadRange,
                    fmt::format("the prompt has {} tokens to compute, but the context has room "
                                "for {}",
                                more, options_.n_ctx));
    }
    shift(task, *n);
    return {};
}

// Drops `n` of the tokens that are computed.
void Engine::shift(Task& task, size_t n) {
    const size_t keep = *task.request.context_shift;
    task.n_computed = drop_tokens(decoder_.memory(), *task.seq, task.n_computed, keep, n);
    const auto first = task.tokens.begin() + static_cast<ptrdiff_t>(keep);
    task.tokens.erase(first, first + static_cast<ptrdiff_t>(n));
    task.usage.dropped += static_cast<uint32_t>(n);
}

// So that the newest token finds a cell.
void Engine::shift_if_full(Task& task) {
    if (task.tokens.size() <= options_.n_ctx) {
        return;
    }
    // A request that keeps all of the context was refused.
    shift(task, *tokens_to_drop(task.n_computed, *task.request.context_shift, options_.n_ctx - 1));
}

// After a step that computed `pick`: the task has more cells, and perhaps another token.
void Engine::advance(const Scheduler::Pick& pick, const std::optional<Result<Token>>& sampled) {
    Task& task = *pick.task;
    task.n_computed += pick.count;
    task.usage.computed += static_cast<uint32_t>(pick.count);
    take_runs(task);
    if (task.left() > 0) {
        return;  // more of the prompt is to come
    }
    if (!task.wants_more()) {
        end(task, StopReason::kLength);  // max_tokens of 0: the prompt was all
        return;
    }
    const Result<Token>& token = *sampled;
    if (!token) {
        end(task, token.error());
    } else if (is_end(task, *token)) {
        end(task, StopReason::kEos);
    } else {
        task.sampler.accept(*token);
        task.tokens.push_back(*token);
        task.usage.generated++;
        events_.push_back({task.id, *token, std::nullopt, std::nullopt, task.usage});
        const bool full = task.tokens.size() > options_.n_ctx && !task.request.context_shift;
        if (!task.wants_more() || full) {
            retire(task, true);
            events_.back().stop = StopReason::kLength;
        } else {
            shift_if_full(task);
        }
    }
}

bool Engine::is_end(const Task& task, Token token) const {
    return !task.request.ignore_eos &&
           std::find(options_.eog.begin(), options_.eog.end(), token) != options_.eog.end();
}

void Engine::end(Task& task, StopReason reason) {
    events_.push_back({task.id, std::nullopt, reason, std::nullopt, task.usage});
    retire(task, true);
}

void Engine::end(Task& task, Error error) {
    events_.push_back({task.id, std::nullopt, std::nullopt, std::move(error), task.usage});
    retire(task, false);
}

// Takes the task out. `sound`: its sequence holds what it should, so a session keeps it.
void Engine::retire(Task& task, bool sound) {
    drop_fork(task);
    if (!task.request.session) {
        if (task.seq) {
            forget(*task.seq);
            free_seqs_.push_back(*task.seq);
        }
        scheduler_.remove(task.id, 0);
        return;
    }
    Session& session = sessions_.at(*task.request.session);
    session.busy = false;
    if (task.seq && sound) {
        task.tokens.resize(task.n_computed);
        session.tokens = std::move(task.tokens);
        session.shifted = session.shifted || task.usage.dropped > 0;
        session.moved = session.moved || task.moved;
    } else if (task.seq) {
        forget(session.seq);
        session.tokens.clear();
    }
    session.shifted = session.shifted && !session.tokens.empty();
    session.moved = session.moved && !session.tokens.empty();
    session.cells = cells_held(decoder_.memory(), session.seq);
    scheduler_.remove(task.id, session.cells);
}

// Never refused: the engine leaves no plan open, and the range is whole.
void Engine::forget(SeqId seq) {
    (void)decoder_.memory().seq_rm(seq, 0, kOpen);
}

SeqId Engine::take_seq() {
    if (free_seqs_.empty()) {
        return SeqId{next_seq_++};
    }
    const SeqId seq = free_seqs_.back();
    free_seqs_.pop_back();
    return seq;
}

SessionId Engine::open_session() {
    const SessionId id{next_session_++};
    sessions_[id].seq = take_seq();
    return id;
}

Result<Session*> Engine::idle_session(SessionId id) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) {
        return fail(Code::kBadRange, "there is no such session");
    }
    if (it->second.busy) {
        return fail(Code::kBusy, "the session has a request that has not ended");
    }
    return &it->second;
}

Result<void> Engine::close_session(SessionId id) {
    auto session = idle_session(id);
    if (!session) {
        return pass(std::move(session));
    }
    forget((*session)->seq);
    free_seqs_.push_back((*session)->seq);
    scheduler_.give_back((*session)->cells);
    sessions_.erase(id);
    return {};
}

size_t Engine::held(SessionId id) const {
    const auto it = sessions_.find(id);
    return it == sessions_.end() ? 0 : it->second.tokens.size();
}

}  // namespace cellar
