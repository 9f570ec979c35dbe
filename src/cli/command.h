#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "base/error.h"

namespace cellar::cli {

// One of cellar's commands: its part of the command line, and what it does once that was read.
struct Command {
    CLI::App* app = nullptr;
    std::function<Result<void>()> run;
};

// Each adds its command to `app`.
Command add_generate(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_replay(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_devices(CLI::App& app);

}  // namespace cellar::cli
