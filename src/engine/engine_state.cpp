// Sessions that outlive the engine.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace cellar {

namespace {

// Whether the sequence holds the positions [0, held) and nothing else, as the engine's do.
bool holds_from_zero(const Cells& cells, SeqId seq, size_t held) {
    for (uint32_t group = 0; group < cells.n_groups(); group++) {
        const GroupKind kind = cells.kind(group);
        if (kind.is_recurrent() && cells.taken_up_from(seq, group) != 0) {
            return false;
        }
        size_t n = 0;
        for (const Span& span : cells.spans(seq, group)) {
            n += span.count;
        }
        if (!kind.is_recurrent() && !kind.slides() && n != held) {
            return false;
        }
    }
    return cells.seq_pos_max(seq) + 1 == static_cast<Pos>(held);
}

}  // namespace

Result<Saving> Engine::save(SessionId id, const Identity& identity, std::span<const Token> text,
                            SaveOptions options) {
    auto session = idle_session(id);
    if (!session) {
        return pass(std::move(session));
    }
    const std::vector<Token>& held = (*session)->tokens;
    if (held.empty()) {
        return fail(Code::kBadRange, "the session holds nothing to save");
    }
    if (text.empty()) {
        text = held;
    }
    if (text.size() < held.size() || !std::equal(held.begin(), held.end(), text.begin())) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a text of {} tokens does not begin with the {} that the session "
                                "holds",
                                text.size(), held.size()));
    }
    if (Result<void> applied = decoder_.apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    const SequenceToSave sequence{(*session)->seq, text};
    return Saving::begin(decoder_.memory(), identity, {&sequence, 1}, std::move(options));
}

Result<std::vector<Token>> Engine::load(SessionId id, const Identity& identity, Source& source,
                                        const LoadSessionOptions& options) {
    auto session = idle_session(id);
    if (!session) {
        return pass(std::move(session));
    }
    if (Result<void> applied = decoder_.apply_pending(); !applied) {
        return pass(std::move(applied));
    }
    // First beside the session, so that it changes only when all is well.
    if (!scheduler_.take_text()) {
        return tl::unexpected<Error>(no_text("the state"));
    }
    const SeqId beside = take_seq();
    auto text = load_beside(**session, beside, identity, source, options);
    scheduler_.give_text();
    if (text) {
        take_over(**session, beside, *text);
    }
    forget(beside);
    free_seqs_.push_back(beside);
    return text;
}

Result<std::vector<Token>> Engine::load_beside(const Session& session, SeqId beside,
                                               const Identity& identity, Source& source,
                                               const LoadSessionOptions& options) {
    Memory& memory = decoder_.memory();
    auto loaded = load_state(
        memory, identity, source,
        {.into = beside, .convert = options.convert, .progress = options.progress, .trim = true});
    if (!loaded) {
        return pass(std::move(loaded));
    }
    std::vector<Token> text = std::move(loaded->front().tokens);
    const auto held = static_cast<size_t>(memory.seq_pos_max(beside)) + 1;
    if (held > options_.n_ctx) {
        return fail(Code::kBadRange, fmt::format("the state holds {} tokens, but the context has "
                                                 "room for {}",
                                                 held, options_.n_ctx));
    }
    if (held == 0 || held > text.size() || !holds_from_zero(memory.cells(), beside, held)) {
        return fail(
            Code::kUnsupported,
            fmt::format("the state is no text from its first token on: it has {} tokens, "
                        "and positions from {} to {}",
                        text.size(), memory.seq_pos_min(beside), memory.seq_pos_max(beside)));
    }
    if (Result<void> known = check_tokens(text); !known) {
        return pass(std::move(known));
    }
    const uint64_t cells = cells_held(memory, beside);
    const uint64_t free = scheduler_.free_cells() + session.cells;
    if (cells > free) {
        return tl::unexpected<Error>(
            Error{Code::kNoRoom,
                  fmt::format("the state needs {} cells, but requests and sessions leave {} free",
                              cells, free),
                  Room{cells, free, 0}});
    }
    return text;
}

// The session becomes what the sequence `loaded` holds, the first of `text`.
void Engine::take_over(Session& session, SeqId loaded, std::span<const Token> text) {
    Memory& memory = decoder_.memory();
    forget(session.seq);
    (void)memory.seq_cp(loaded, session.seq, 0, kOpen);  // whole, into an empty one: never refused
    const auto held = static_cast<size_t>(memory.seq_pos_max(session.seq)) + 1;
    session.tokens.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(held));
    scheduler_.give_back(session.cells);
    session.cells = cells_held(memory, session.seq);
    scheduler_.set_aside(session.cells);
    const uint64_t in_a_row = scheduler_.in_pages(held);
    session.shifted = session.cells > in_a_row;
    session.moved = session.cells > in_a_row + uint64_t{kShiftPages} * memory.config().page_size;
}

}  // namespace cellar
