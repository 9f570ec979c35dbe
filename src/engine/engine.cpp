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
    if (options.step_tokens == 0) {
        return fail(Code::kInvalidArgument, "a step must compute at least 1 token");
    }
    return std::unique_ptr<Engine>(new Engine(decoder, options));
}

Engine::Engine(Decoder& decoder, const EngineOptions& options)
    : options_(options),
      decoder_(decoder),
      scheduler_(decoder.memory().config().n_cells, decoder.memory().config().page_size),
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
    const uint64_t longest = uint64_t{task->usage.prompt} + task->max_tokens;
    scheduler_.add(std::move(task), std::min<uint64_t>(longest, options_.n_ctx));
    return id;
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
        const size_t held_already = session ? held(*session) : 0;
        if (scheduler_.admit(held_already)) {
            begin(*next);
        } else if (scheduler_.any_running()) {
            return;
        } else {
            // Only idle sessions stand in its way, and nothing here will ever remove them.
            const uint64_t free = scheduler_.free_cells() + scheduler_.in_pages(held_already);
            Error error{Code::kNoRoom,
                        fmt::format("the request needs {} cells, but sessions leave only {} free",
                                    next->cells, free),
                        Room{next->cells, free, 0}};
            end(*next, std::move(error));
        }
    }
}

void Engine::begin(Task& task) {
    if (!task.request.session) {
        task.seq = take_seq();
        return;
    }
    Session& session = sessions_.at(*task.request.session);
    task.seq = session.seq;
    task.n_computed = session.rewind_to(task.tokens, decoder_.memory());
    task.usage.cached = static_cast<uint32_t>(task.n_computed);
}

// After a step that computed `pick`: the task has more cells, and perhaps another token.
void Engine::advance(const Scheduler::Pick& pick, const std::optional<Result<Token>>& sampled) {
    Task& task = *pick.task;
    task.n_computed += pick.count;
    task.usage.computed += static_cast<uint32_t>(pick.count);
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
        if (!task.wants_more() || task.tokens.size() > options_.n_ctx) {
            retire(task, true);
            events_.back().stop = StopReason::kLength;
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
    } else if (task.seq) {
        forget(session.seq);
        session.tokens.clear();
    }
    scheduler_.remove(task.id, session.tokens.size());
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

Result<void> Engine::close_session(SessionId id) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) {
        return fail(Code::kBadRange, "there is no such session");
    }
    if (it->second.busy) {
        return fail(Code::kBusy, "the session has a request that has not ended");
    }
    forget(it->second.seq);
    free_seqs_.push_back(it->second.seq);
    scheduler_.give_back(it->second.tokens.size());
    sessions_.erase(it);
    return {};
}

size_t Engine::held(SessionId id) const {
    const auto it = sessions_.find(id);
    return it == sessions_.end() ? 0 : it->second.tokens.size();
}

Result<void> Engine::check(const Request& request) const {
    if (request.prompt.empty()) {
        return fail(Code::kInvalidArgument, "the prompt is empty");
    }
    if (request.prompt.size() > options_.n_ctx) {
        return fail(Code::kBadRange,
                    fmt::format("the prompt has {} tokens, but the context has room for {}",
                                request.prompt.size(), options_.n_ctx));
    }
    for (const Token token : request.prompt) {
        if (token < 0 || static_cast<uint32_t>(token) >= options_.n_vocab) {
            return fail(Code::kInvalidArgument,
                        fmt::format("{} is no token: the vocabulary has {}, counted from 0", token,
                                    options_.n_vocab));
        }
    }
    if (request.session) {
        const auto it = sessions_.find(*request.session);
        if (it == sessions_.end()) {
            return fail(Code::kBadRange, "the request names a session that does not exist");
        }
        if (it->second.busy) {
            return fail(Code::kBusy, "the session has a request that has not ended");
        }
    }
    return {};
}

}  // namespace cellar
