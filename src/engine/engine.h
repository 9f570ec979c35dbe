#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "engine/chunk_reuse.h"
#include "engine/context_shift.h"
#include "engine/decoder.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "state/loader.h"
#include "state/saving.h"

namespace cellar {

struct EngineOptions {
    uint32_t n_ctx = 4096;        // tokens of one request or session; at most the pool's cells
    uint32_t n_vocab = 0;         // of the model
    uint32_t step_tokens = 512;   // computed in one step; best the decoder's max_ubatch
    std::vector<Token> eog = {};  // tokens that end a text
};

struct LoadSessionOptions {
    bool convert = false;         // keys and values of other types are converted
    StateProgress progress = {};  // may be empty
};

// Writes texts for many requests at once (continuous batching): each step computes a token for
// every request that writes and a piece of the prompts of those that begin.
//
//   auto id = engine->submit({.prompt = tokens, .max_tokens = 100});
//   while (!engine->idle()) {
//       for (const Event& event : engine->step()) { ... }
//   }
//
// A text ends with kLength when its newest token finds the context full: a prompt of P tokens can
// be followed by n_ctx - P + 1, since the last one needs no cell. With Request::context_shift it
// goes on instead: see context_shift.h. All sequences of the decoder's memory are the engine's. Not
// thread-safe.
class Engine {
public:
    // `decoder` must outlive the engine, which keeps to Decoder::max_texts. Errors:
    // kInvalidArgument for options that do not fit it, or a memory without room for one text.
    static Result<std::unique_ptr<Engine>> create(Decoder& decoder, const EngineOptions& options);

    // Queues a request. Errors: kInvalidArgument for a prompt that is empty or holds what is no
    // token, for absurd sampling, for a context shift that keeps the whole context, or for one, or
    // a reuse of chunks, that the memory has no pages for (kShiftPages, kReusePages), or a reuse
    // where there is never room for a second text, its fork; kBadRange for a prompt longer than the
    // context (of a session that may shift, for one with more new tokens than that) or an unknown
    // session; kUnsupported for a context shift in a memory that cannot move positions; kBusy for a
    // session with another request.
    Result<RequestId> submit(Request request);

    // The request ends with kCancelled in the next step. Unknown or ended ones: does nothing.
    void cancel(RequestId id);

    // One step: schedule, then prepare, compute and commit (Decoder), sample, report. The events
    // are valid until the next step. What fails is reported in events of the requests it concerns:
    // their sequences are dropped (a session's too: it is empty then), all others go on.
    const std::vector<Event>& step();

    // Nothing to do for step().
    bool idle() const { return scheduler_.empty(); }

    // A sequence that is kept from request to request, until it is closed. Its cells count as used.
    SessionId open_session();
    // Errors: kBadRange for an unknown session, kBusy while a request uses it.
    Result<void> close_session(SessionId id);
    // How many tokens the session's sequence holds; 0 for an unknown one.
    size_t held(SessionId id) const;

    // A session's sequence about to be written: see Saving, and write it before anything else is
    // done with the engine. `text` is what the sequence is the beginning of, and comes back when it
    // is loaded; often one token longer than what is held, since the newest is not computed yet.
    // None: what is held. Errors: kBadRange for an unknown or empty session, kBusy while a request
    // uses it, kInvalidArgument for a text that does not begin with what it holds; as
    // Saving::begin.
    Result<Saving> save(SessionId id, const Identity& identity, std::span<const Token> text = {},
                        SaveOptions options = {});
    // Loads the one sequence of a state in the place of what the session holds, and returns its
    // text: a prompt that begins with it computes only what is not held. On error the session is as
    // it was. Errors: as save, and as load_state; kBadRange for more tokens than the context has
    // room for, kUnsupported for what is no text from position 0 on, kNoRoom when requests and
    // sessions have set aside too much: of cells, or no text is free for the time of loading, since
    // what the session holds stays until all is well; kInvalidArgument for tokens that are none.
    Result<std::vector<Token>> load(SessionId id, const Identity& identity, Source& source,
                                    const LoadSessionOptions& options = {});

    // Cells that the memory needs beyond n_ctx for context shifts: kShiftPages, and what n_ctx
    // lacks of whole pages.
    static constexpr uint32_t shift_cells(uint32_t page_size) {
        return (kShiftPages + 1) * page_size - 1;
    }
    // The same for requests with reuse_chunks; with both, the sum.
    static constexpr uint32_t reuse_cells(uint32_t page_size) {
        return (kReusePages + 1) * page_size - 1;
    }

    const EngineOptions& options() const { return options_; }

private:
    Engine(Decoder& decoder, const EngineOptions& options);

    Result<void> check(const Request& request) const;
    Result<void> check_tokens(std::span<const Token> tokens) const;
    Result<void> check_shift(const Request& request) const;
    Result<void> check_spare(const Request& request) const;
    Result<void> check_length(const Request& request) const;
    uint64_t spare_pages(const Request& request, bool shifts) const;
    uint64_t cells_for(const Task& task) const;
    void admit();
    Error blocked(const Task& task, uint64_t held) const;
    Error no_text(std::string_view who) const;
    Result<void> begin(Task& task);
    bool reuses(const Request& request) const;
    void reuse(Task& task, Session& session);
    bool fork_runs_of(Task& task, Session& session, const std::vector<CommonRun>& runs);
    void take_runs(Task& task);
    void drop_fork(Task& task);
    void shift(Task& task, size_t n);
    void shift_if_full(Task& task);
    void advance(const Scheduler::Pick& pick, const std::optional<Result<Token>>& sampled);
    bool is_end(const Task& task, Token token) const;
    void end(Task& task, StopReason reason);
    void end(Task& task, Error error);
    void retire(Task& task, bool sound);
    void forget(SeqId seq);
    SeqId take_seq();
    Result<Session*> idle_session(SessionId id);
    Result<std::vector<Token>> load_beside(const Session& session, SeqId beside,
                                           const Identity& identity, Source& source,
                                           const LoadSessionOptions& options);
    void take_over(Session& session, SeqId loaded, std::span<const Token> text);

    const EngineOptions options_;
    Decoder& decoder_;
    Scheduler scheduler_;
    std::unordered_map<SessionId, Session> sessions_;
    std::vector<RequestId> cancelled_;
    std::vector<SeqId> free_seqs_;
    int32_t next_seq_ = 0;  // never given out so far
    uint64_t next_request_ = 0;
    uint32_t next_session_ = 0;
    Batch batch_;                // of the current step
    std::vector<Event> events_;  // of the current step
};

}  // namespace cellar
