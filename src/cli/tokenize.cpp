#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/options.h"
#include "gguf/gguf_file.h"
#include "text/gguf_text.h"

namespace cellar::cli {

namespace {

struct Options {
    std::string model;
    bool json = false;
};

Result<void> tokenize(const Options& options) {
    Result<GgufFile> file = GgufFile::open(options.model);
    if (!file) {
        return pass(std::move(file));
    }
    auto tokenizer = load_tokenizer(*file);
    if (!tokenizer) {
        return pass(std::move(tokenizer));
    }
    Result<std::string> text = read_stdin();
    if (!text) {
        return pass(std::move(text));
    }
    const std::vector<Token> tokens = (*tokenizer)->encode(*text, {.parse_special = true});
    if (options.json) {
        return print(nlohmann::json{{"tokens", tokens}}.dump() + "\n");
    }
    fmt::memory_buffer out;
    for (const Token token : tokens) {
        fmt::format_to(std::back_inserter(out), "{}\n", token);
    }
    return print({out.data(), out.size()});
}

}  // namespace

Command add_tokenize(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "tokenize",
        "Turns standard input into token ids, one a line. Every byte counts, special tokens\n"
        "such as <|im_start|> are recognised, and nothing is added.");
    add_model_option(*command, options->model);
    command->add_flag("--json", options->json, "print {\"tokens\":[...]}");
    command->footer("Example:\n  printf 'Hello, world!' | cellar tokenize -m model.gguf --json");
    return {command, [options] { return tokenize(*options); }};
}

}  // namespace cellar::cli
