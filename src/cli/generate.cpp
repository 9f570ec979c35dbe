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
#include "cli/state_file.h"
#include "cli/writer.h"
#include "engine/conversation.h"

namespace cellar::cli {

namespace {

struct Options : WriterOptions {
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_file;
    bool raw = false;
    std::optional<std::string> save, load;  // state files
    bool compress = false;
    bool convert = false;
    bool replace = false;

    // A loaded text is gone on with as it is, unless something is to follow or replace it.
    bool asks() const { return prompt || prompt_file || replace || !load; }
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

// What follows `held`. A prompt of nothing is the model's beginning of text, where it has one.
Result<std::vector<Token>> encode_prompt(const std::string& text, const Options& options,
                                         const LoadedModel& loaded, std::vector<Token> held) {
    auto format = format_for(options, loaded);
    if (!format) {
        return pass(std::move(format));
    }
    const Tokenizer& tokenizer = *loaded.tokenizer;
    if (*format && !text.empty()) {
        Conversation conversation(tokenizer, **format, "");
        conversation.resume(std::move(held));
        return conversation.prompt(text);
    }
    std::vector<Token> tokens = tokenizer.encode(
        text, {.parse_special = true, .add_bos = tokenizer.adds_bos() && held.empty()});
    tokens.insert(tokens.begin(), held.begin(), held.end());
    if (tokens.empty() && !*format && tokenizer.vocab().bos()) {
        tokens.push_back(*tokenizer.vocab().bos());
    }
    if (tokens.empty()) {
        return fail(Code::kInvalidArgument,
                    "the prompt is empty; give a text with -p, -f or on standard input");
    }
    return tokens;
}

// The tokens to write on from, whatever of them `session` holds.
Result<std::vector<Token>> begin_text(const Options& options, const std::string& prompt,
                                      const Writer& writer, SessionId session) {
    std::vector<Token> held;
    if (options.load) {
        auto loaded = load_session(writer, session, *options.load, options.convert);
        if (!loaded) {
            return loaded;
        }
        held = *std::move(loaded);
    }
    if (options.replace) {
        held.clear();  // the session holds it still, and computes what differs
    }
    return options.asks() ? encode_prompt(prompt, options, *writer.loaded, std::move(held)) : held;
}

// `tokens` and what was written behind them, without what context shifts dropped.
Result<void> save_text(const Options& options, const Writer& writer, SessionId session,
                       std::vector<Token> tokens, const Reply& reply) {
    tokens.insert(tokens.end(), reply.tokens.begin(), reply.tokens.end());
    const auto first = tokens.begin() + static_cast<ptrdiff_t>(options.context_shift.value_or(0));
    tokens.erase(first, first + static_cast<ptrdiff_t>(reply.usage.dropped));
    return save_session(writer, session, tokens, *options.save, options.compress);
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
    auto prompt = options.asks() ? read_prompt(options) : "";
    if (!prompt) {
        return pass(std::move(prompt));
    }
    auto writer = Writer::create(options);
    if (!writer) {
        return pass(std::move(writer));
    }
    const SessionId session = writer->engine->open_session();
    auto tokens = begin_text(options, *prompt, *writer, session);
    if (!tokens) {
        return pass(std::move(tokens));
    }
    Request request = make_request(options, *tokens);
    request.session = session;
    const auto on_text = [&options](std::string_view part) {
        return options.json ? Result<void>{} : print(part);
    };
    auto reply =
        write_reply(*writer->engine, std::move(request), *writer->loaded->tokenizer, on_text);
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
    if (printed && options.save) {
        printed = save_text(options, *writer, session, *std::move(tokens), *reply);
    }
    const Result<void> closed = writer->engine->close_session(session);
    return printed ? closed : printed;
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
    CLI::Option* save =
        command
            ->add_option("--save", options->save,
                         "afterwards write the text and its memory to FILE, for --load")
            ->type_name("FILE");
    command->add_flag("--compress", options->compress, "with --save: smaller, but slower")
        ->needs(save);
    CLI::Option* load =
        command
            ->add_option("--load", options->load,
                         "first take up what --save wrote: without -p or -f the text goes on, "
                         "with one that comes next; nothing of it is computed again")
            ->type_name("FILE");
    command
        ->add_flag("--convert", options->convert,
                   "with --load: accept other types of keys and values, and convert them")
        ->needs(load);
    command
        ->add_flag("--replace", options->replace,
                   "with --load: the prompt does not follow the loaded text but stands in its "
                   "place; what both begin with (see also --reuse-chunks) is not computed again")
        ->needs(load);
    command->footer(
        "Example:\n"
        "  cellar generate -m model.gguf -p 'Why is the sky blue?' -n 100 --temp 0");
    return {command, [options] { return generate(*options); }};
}

}  // namespace cellar::cli
