#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/inspect_report.h"
#include "state/files.h"
#include "state/inspection.h"

namespace cellar::cli {

namespace {

struct Options {
    std::string file;
    bool json = false;
};

// A file tells what it is by its first bytes.
Result<std::string> magic_of(const std::string& path) {
    auto source = FileSource::open(path);
    if (!source) {
        return pass(std::move(source));
    }
    std::array<char, 8> magic{};
    auto n = (*source)->read(std::as_writable_bytes(std::span(magic)));
    if (!n) {
        return pass(std::move(n));
    }
    return std::string(magic.data(), *n);
}

Result<void> inspect_state_file(const Options& options) {
    auto source = FileSource::open(options.file);
    if (!source) {
        return pass(std::move(source));
    }
    auto inspection = inspect_state(**source);
    if (!inspection) {
        inspection.error().message = options.file + ": " + inspection.error().message;
        return pass(std::move(inspection));
    }
    const auto report = report_state(*inspection);
    auto printed = print(options.json ? report.dump() + "\n" : text_of_state(*inspection));
    if (printed && !inspection->verified) {
        Error error = inspection->verified.error();
        error.message = options.file + ": " + error.message;
        return tl::unexpected<Error>(std::move(error));
    }
    return printed;
}

Result<void> inspect_gguf_file(const Options& options) {
    auto file = GgufFile::open(options.file);
    if (!file) {
        return pass(std::move(file));
    }
    return print(options.json ? report_gguf(*file).dump() + "\n" : text_of_gguf(*file));
}

Result<void> inspect(const Options& options) {
    auto magic = magic_of(options.file);
    if (!magic) {
        return pass(std::move(magic));
    }
    if (magic->starts_with("GGUF")) {
        return inspect_gguf_file(options);
    }
    if (magic->starts_with("CELLAR")) {
        return inspect_state_file(options);
    }
    return fail(
        Code::kBadFile,
        fmt::format("{}: it begins neither as a state of Cellar nor as a GGUF file", options.file));
}

}  // namespace

Command add_inspect(CLI::App& app) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(
        "inspect",
        "Says what a file holds: a state that was saved (for which model, which sequences, and\n"
        "whether all of it is what its checksums say), or a model in GGUF.");
    command->add_option("file", options->file, "a state or a GGUF file")
        ->type_name("FILE")
        ->required();
    command->add_flag("--json", options->json, "print one JSON object");
    command->footer("Example:\n  cellar inspect conversation.state");
    return {command, [options] { return inspect(*options); }};
}

}  // namespace cellar::cli
