#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/loaded_model.h"
#include "cli/version.h"

namespace cellar::cli {

namespace {

// A complaint of CLI11 or ours as a sentence that says where help is.
std::string usage_sentence(std::string what, const std::string& command) {
    while (!what.empty() && (what.back() == '.' || what.back() == '\n')) {
        what.pop_back();
    }
    return fmt::format("{} (see '{} --help')", what, command);
}

int report(const Result<void>& result) {
    if (!result) {
        complain(result.error().message);
        return 1;
    }
    return 0;
}

}  // namespace

int run(int argc, const char* const* argv) {
    CLI::App app("Cellar runs language models, and keeps their attention memory.", "cellar");
    app.set_version_flag("--version", fmt::format("cellar {}", kVersion));
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    app.footer("Example:\n  cellar generate -m models/SmolLM2-135M-Instruct.Q4_1.gguf -p 'Hello!'");
    const std::vector<Command> commands = {add_generate(app), add_chat(app),   add_tokenize(app),
                                           add_bench(app),    add_replay(app), add_inspect(app),
                                           add_devices(app)};
    const auto chosen = [&]() -> const Command* {
        for (const Command& command : commands) {
            if (command.app->parsed()) {
                return &command;
            }
        }
        return nullptr;
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);  // --help and --version
        }
        const Command* command = chosen();
        if (!command && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
            complain(usage_sentence(
                "name a command: generate, chat, tokenize, bench, replay or inspect" +
                    (argc > 1 ? fmt::format(", not '{}'", argv[1]) : ""),
                "cellar"));
            return 2;
        }
        complain(usage_sentence(error.what(),
                                command ? "cellar " + command->app->get_name() : "cellar"));
        return 2;
    }
    handle_signals();
    silence_ggml();
    return report(chosen()->run());
}

}  // namespace cellar::cli
