#include "cli/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/console.h"
#include "text/text_stream.h"

namespace cellar::cli {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// "5 tokens in 12 ms (417/s)".
std::string rate(uint32_t n, double ms) {
    std::string text = fmt::format("{} token{} in {:.0f} ms", n, n == 1 ? "" : "s", ms);
    return n > 0 && ms > 0.0 ? fmt::format("{} ({:.1f}/s)", text, 1000.0 * n / ms) : text;
}

}  // namespace

uint32_t Reply::prompt_n() const {
    return std::min(usage.computed, usage.prompt - usage.cached);
}

uint32_t Reply::decode_n() const {
    return usage.computed - prompt_n();
}

Result<Reply> write_reply(Engine& engine, Request request, const Tokenizer& tokenizer,
                          const OnText& on_text) {
    Reply reply;
    TextStream stream(tokenizer);
    Result<void> written;
    const auto give = [&](const std::string& text) {
        reply.text += text;
        if (written && !text.empty()) {
            written = on_text(text);
        }
    };
    const Clock::time_point start = Clock::now();
    const Result<RequestId> id = engine.submit(std::move(request));
    if (!id) {
        return fail(id.error().code, id.error().message);
    }
    while (!engine.idle()) {
        if (take_interrupt() || !written) {
            engine.cancel(*id);
        }
        for (const Event& event : engine.step()) {
            if (event.error) {
                return tl::unexpected<Error>(*event.error);
            }
            if (event.token) {
                if (reply.tokens.empty()) {
                    reply.prompt_ms = ms_since(start);
                }
                reply.tokens.push_back(*event.token);
                give(stream.push(*event.token));
            }
            reply.stop = event.stop.value_or(reply.stop);
            reply.usage = event.usage;
        }
    }
    if (reply.tokens.empty()) {
        reply.prompt_ms = ms_since(start);
    }
    reply.decode_ms = ms_since(start) - reply.prompt_ms;
    give(stream.finish());
    if (!written) {
        return pass(std::move(written));
    }
    return reply;
}

nlohmann::ordered_json to_json(const Reply& reply) {
    return {{"prompt_tokens", reply.usage.prompt},
            {"cached_tokens", reply.usage.cached},
            {"tokens", reply.tokens},
            {"text", reply.text},
            {"stop_reason", name(reply.stop)},
            {"timings",
             {{"prompt_n", reply.prompt_n()},
              {"prompt_ms", reply.prompt_ms},
              {"decode_n", reply.decode_n()},
              {"decode_ms", reply.decode_ms}}}};
}

std::string summary(const Reply& reply) {
    std::string held;
    if (reply.usage.cached > 0) {
        held = fmt::format(" ({} of {} were held)", reply.usage.cached, reply.usage.prompt);
    }
    return fmt::format("prompt: {}{}; decode: {}; stopped: {}",
                       rate(reply.prompt_n(), reply.prompt_ms), held,
                       rate(reply.decode_n(), reply.decode_ms), name(reply.stop));
}

}  // namespace cellar::cli
