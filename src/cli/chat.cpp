#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/reply.h"
#include "cli/state_file.h"
#include "cli/writer.h"
#include "engine/conversation.h"

namespace cellar::cli {

namespace {

struct Options : WriterOptions {
    std::string system;
    std::optional<std::string> session;  // the file that the conversation is kept in
};

// One conversation: a session of the engine that holds it, and the tokens that it consists of.
class Chat {
public:
    Chat(const Options& options, const Writer& writer, const ChatFormat& format)
        : options_(options),
          writer_(writer),
          conversation_(*writer.loaded->tokenizer, format, options.system),
          session_(writer.engine->open_session()) {}

    // Answers one line of the user's; says how the reply ended.
    Result<StopReason> answer(const std::string& line) {
        std::vector<Token> prompt = conversation_.prompt(line);
        Request request = make_request(options_, prompt);
        request.session = session_;
        // Another seed for each reply, but the same from run to run.
        request.sampling.seed += turn_++;
        const auto on_text = [this](std::string_view part) {
            return options_.json ? Result<void>{} : print(part);
        };
        auto reply =
            write_reply(*writer_.engine, std::move(request), *writer_.loaded->tokenizer, on_text);
        if (!reply && reply.error().code == Code::kBadRange) {
            reply.error().message += "; enter /clear to begin a new conversation";
        }
        if (!reply) {
            return pass(std::move(reply));
        }
        conversation_.record(std::move(prompt), reply->tokens);
        conversation_.drop(options_.context_shift.value_or(0), reply->usage.dropped);
        if (Result<void> shown = show(*reply); !shown) {
            return pass(std::move(shown));
        }
        return reply->stop;
    }

    void clear() { conversation_.clear(); }

    // Takes up the conversation that its file holds, if there is one.
    Result<void> resume() {
        std::error_code unknown;
        if (!options_.session ||
            (!std::filesystem::exists(*options_.session, unknown) && !unknown)) {
            return {};
        }
        auto tokens = load_session(writer_, session_, *options_.session, false);
        if (!tokens) {
            return pass(std::move(tokens));
        }
        conversation_.resume(*std::move(tokens));
        if (options_.verbose) {
            complain(fmt::format("the conversation so far has {} tokens",
                                 conversation_.tokens().size()));
        }
        return {};
    }

    // Writes what was said to its file.
    Result<void> keep() const {
        if (!options_.session || turn_ == 0 || writer_.engine->held(session_) == 0) {
            return {};
        }
        return save_session(writer_, session_, conversation_.tokens(), *options_.session, false);
    }

private:
    Result<void> show(const Reply& reply) const {
        if (options_.json) {
            return print(to_json(reply).dump() + "\n");
        }
        if (Result<void> printed = print("\n"); !printed) {
            return printed;
        }
        const uint32_t n_ctx = writer_.engine->options().n_ctx;
        if (!options_.context_shift && reply.usage.prompt + reply.usage.generated > n_ctx) {
            complain(fmt::format(
                "the context of {} tokens is full; enter /clear to begin a new conversation",
                n_ctx));
        }
        if (options_.verbose) {
            complain(summary(reply));
        }
        return {};
    }

    const Options& options_;
    const Writer& writer_;
    Conversation conversation_;
    const SessionId session_;
    uint64_t turn_ = 0;
};

std::optional<std::string> ask() {
    const bool terminal = stdin_is_terminal() && stdout_is_terminal();
    if (terminal && !print("> ")) {
        return std::nullopt;
    }
    return read_line();
}

// Whether the conversation goes on after what went wrong: only if it is about this line alone.
bool recoverable(const Error& error) {
    return error.code == Code::kBadRange || error.code == Code::kInvalidArgument;
}

Result<void> converse(Chat& chat) {
    size_t unanswered = 0;
    while (const std::optional<std::string> line = ask()) {
        if (*line == "/exit" || *line == "/quit") {
            break;
        }
        if (*line == "/clear") {
            chat.clear();
        } else if (!line->empty()) {
            auto end = chat.answer(*line);
            if (!end && !recoverable(end.error())) {
                return pass(std::move(end));
            }
            if (!end) {
                complain(end.error().message);
                unanswered++;
            } else if (*end == StopReason::kCancelled && !stdin_is_terminal()) {
                break;  // nobody is there to take back the Ctrl-C with another line
            }
        }
    }
    if (interrupted()) {
        return print("\n");  // the terminal shows ^C behind the prompt
    }
    if (unanswered > 0 && !stdin_is_terminal()) {
        return fail(Code::kBadRange,
                    fmt::format("{} of the messages had no room for an answer", unanswered));
    }
    return {};
}

Result<void> chat(const Options& options) {
    auto writer = Writer::create(options);
    if (!writer) {
        return pass(std::move(writer));
    }
    auto format = find_chat_format(*writer->loaded);
    if (!format) {
        return pass(std::move(format));
    }
    if (!*format) {
        return fail(Code::kUnsupported,
                    fmt::format("{}: the model has no chat format; `cellar generate` can use it",
                                options.model));
    }
    if (stdin_is_terminal() && stderr_is_terminal()) {
        complain("enter /clear for a new conversation, /exit to leave; Ctrl-C ends a reply");
    }
    Chat conversation(options, *writer, **format);
    if (auto resumed = conversation.resume(); !resumed) {
        return resumed;
    }
    const Result<void> said = converse(conversation);
    const Result<void> kept = conversation.keep();
    return said ? kept : said;
}

}  // namespace

Command add_chat(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "chat",
        "A conversation: each line of standard input is a message, each reply is printed. What\n"
        "was said stays in memory, so a turn computes its own tokens alone. /clear begins a new\n"
        "conversation, /exit leaves.");
    add_writer_options(*command, *options);
    command->add_option("--system", options->system, "what the model is told before all else")
        ->type_name("TEXT");
    command
        ->add_option("--session", options->session,
                     "keep the conversation in FILE: go on from it if it is there, and write it "
                     "when the conversation ends")
        ->type_name("FILE");
    command->add_flag("--json", options->json, "print one JSON object for each reply");
    command->footer(
        "Example:\n"
        "  cellar chat -m model.gguf --system 'Answer in one sentence.'");
    return {command, [options] { return chat(*options); }};
}

}  // namespace cellar::cli
