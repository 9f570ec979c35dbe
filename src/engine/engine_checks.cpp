// What Engine::submit refuses.

#include <fmt/format.h>

#include "engine/engine.h"

namespace cellar {

Result<void> Engine::check(const Request& request) const {
    if (request.prompt.empty()) {
        return fail(Code::kInvalidArgument, "the prompt is empty");
    }
    if (auto fine = check_tokens(request.prompt); !fine) {
        return fine;
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
    if (auto fine = check_shift(request); !fine) {
        return fine;
    }
    if (auto fine = check_spare(request); !fine) {
        return fine;
    }
    return check_length(request);
}

Result<void> Engine::check_tokens(std::span<const Token> tokens) const {
    for (const Token token : tokens) {
        if (token < 0 || static_cast<uint32_t>(token) >= options_.n_vocab) {
            return fail(Code::kInvalidArgument,
                        fmt::format("{} is no token: the vocabulary has {}, counted from 0", token,
                                    options_.n_vocab));
        }
    }
    return {};
}

Result<void> Engine::check_shift(const Request& request) const {
    if (!request.context_shift) {
        return {};
    }
    if (*request.context_shift >= options_.n_ctx) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a context shift that keeps {} tokens leaves none to drop of a "
                                "context of {}",
                                *request.context_shift, options_.n_ctx));
    }
    const Memory& memory = decoder_.memory();
    if (!memory.can_shift()) {
        return fail(Code::kUnsupported,
                    "this model's memory cannot move positions, which a context shift needs");
    }
    return {};
}

Result<void> Engine::check_spare(const Request& request) const {
    const MemoryConfig& config = decoder_.memory().config();
    const uint64_t pages = spare_pages(request, request.context_shift.has_value());
    const char* const what = request.context_shift ? "shifts"
                             : reuses(request)     ? "moves what it reuses"
                                                   : "goes on behind moved tokens";
    const uint64_t cells = scheduler_.in_pages(options_.n_ctx) + pages * config.page_size;
    if (pages > 0 && cells > config.n_cells) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a context of {} tokens that {} needs a memory of {} cells, not {}",
                                options_.n_ctx, what, cells, config.n_cells));
    }
    if (pages > decoder_.spare_pages()) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a text that {} needs {} spare pages of its sliding windows, and "
                                "this memory was made with {}",
                                what, pages, decoder_.spare_pages()));
    }
    if (reuses(request) && decoder_.max_texts() < 2) {
        return fail(Code::kInvalidArgument,
                    fmt::format("a text that moves what it reuses needs room for 2 sequences, and "
                                "this memory has it for {}",
                                decoder_.max_texts()));
    }
    return {};
}

// A session that may shift only has to find room for what is new.
Result<void> Engine::check_length(const Request& request) const {
    const size_t n = request.prompt.size();
    if (n <= options_.n_ctx) {
        return {};
    }
    if (request.session && request.context_shift) {
        const size_t same = sessions_.at(*request.session).shares(request.prompt);
        const size_t more = n - same;
        if (more < options_.n_ctx &&
            tokens_to_drop(same, *request.context_shift, options_.n_ctx - more)) {
            return {};
        }
    }
    return fail(Code::kBadRange,
                fmt::format("the prompt has {} tokens, but the context has room for {}", n,
                            options_.n_ctx));
}

}  // namespace cellar
