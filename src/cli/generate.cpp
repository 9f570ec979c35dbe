#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/reply.h"
#include "cli/writer.h"

namespace cellar::cli {

namespace {

struct Options : WriterOptions {
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_file;
    bool raw = false;
};

Result<std::string> read_prompt(const Options& options) {
    if (options.prompt && *options.prompt != "-") {
        return *options.prompt;
    }
    if (options.prompt_file && *options.prompt_file != "-") {
        return read_file(*options.prompt_file);
    }
    if (stdin_is_terminal()) {
        complain("type the prompt; Ctrl-D on a new line ends it");
    }
    return read_stdin();
}

// The chat format to write the prompt in, if there is one that we know and it was not declined.
Result<std::optional<ChatFormat>> format_for(const Options& options, const LoadedModel& loaded) {
    if (options.raw) {
        return std::nullopt;
    }
    auto format = find_chat_format(loaded);
    if (!format && format.error().code == Code::kUnsupported) {
        complain("note: " + format.error().message + "; the prompt is taken as with --raw");
        return std::nullopt;
    }
    return format;
}

// A prompt of nothing is the model's beginning of text, where it has one.
Result<std::vector<Token>> encode_prompt(const std::string& text, const Options& options,
                                         const LoadedModel& loaded) {
    auto format = format_for(options, loaded);
    if (!format) {
        return pass(std::move(format));
    }
    const Tokenizer& tokenizer = *loaded.tokenizer;
    if (*format && !text.empty()) {
        const Message message{"user", text};
        return encode_chat(tokenizer, (*format)->pieces({&message, 1}, true), true);
    }
    std::vector<Token> tokens =
        tokenizer.encode(text, {.parse_special = true, .add_bos = tokenizer.adds_bos()});
    if (tokens.empty() && !*format && tokenizer.vocab().bos()) {
        tokens.push_back(*tokenizer.vocab().bos());
    }
    if (tokens.empty()) {
        return fail(Code::kInvalidArgument,
                    "the prompt is empty; give a text with -p, -f or on standard input");
    }
    return tokens;
}

Result<void> print_json(const Reply& reply, const Writer& writer, uint64_t seed) {
    nlohmann::ordered_json object = to_json(reply);
    object["memory"] = {{"weights", writer.loaded->model->info().weight_bytes},
                        {"cells", writer.decoder->memory().bytes()},
                        {"compute", writer.decoder->stepper().compute_bytes()}};
    object["seed"] = seed;
    return print(object.dump() + "\n");
}

Result<void> generate(const Options& options) {
    auto text = read_prompt(options);
    if (!text) {
        return pass(std::move(text));
    }
    auto writer = Writer::create(options);
    if (!writer) {
        return pass(std::move(writer));
    }
    auto tokens = encode_prompt(*text, options, *writer->loaded);
    if (!tokens) {
        return pass(std::move(tokens));
    }
    const auto on_text = [&options](std::string_view part) {
        return options.json ? Result<void>{} : print(part);
    };
    auto reply = write_reply(*writer->engine, make_request(options, *std::move(tokens)),
                             *writer->loaded->tokenizer, on_text);
    if (!reply) {
        return pass(std::move(reply));
    }
    Result<void> printed =
        options.json ? print_json(*reply, *writer, options.sampling.seed) : print("\n");
    if (options.verbose || stderr_is_terminal()) {
        complain(summary(*reply));
    }
    if (options.verbose) {
        complain(fmt::format("seed: {}", options.sampling.seed));
    }
    return printed;
}

}  // namespace

Command add_generate(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "generate",
        "Writes on from a prompt: -p, -f or else standard input, every byte of it. Models that\n"
        "have a chat format get the prompt as a user's message, unless --raw.");
    add_writer_options(*command, *options);
    CLI::Option* prompt =
        command->add_option("-p,--prompt", options->prompt, "the prompt; - reads standard input")
            ->type_name("TEXT");
    command->add_option("-f,--file", options->prompt_file, "a file that holds the prompt")
        ->type_name("FILE")
        ->excludes(prompt);
    command->add_flag("--raw", options->raw,
                      "take the prompt as it is: no chat format, special tokens are recognised");
    command->add_flag("--json", options->json, "print one JSON object when the text is complete");
    command->footer(
        "Example:\n"
        "  cellar generate -m model.gguf -p 'Why is the sky blue?' -n 100 --temp 0");
    return {command, [options] { return generate(*options); }};
}

}  // namespace cellar::cli
