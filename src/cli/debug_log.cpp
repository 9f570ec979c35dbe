#include "cli/debug_log.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cells/view.h"
#include "cli/console.h"

namespace cellar::cli {

namespace {

constexpr const char* kVariable = "CELLAR_DEBUG";

// 0 when nothing, or nothing that makes sense, was asked for.
int level() {
    const char* value = std::getenv(kVariable);
    const std::string_view text = value != nullptr ? value : "";
    if (text.empty() || text == "0") {
        return 0;
    }
    if (text.size() == 1 && text[0] >= '1' && text[0] <= '3') {
        return text[0] - '0';
    }
    complain(
        fmt::format("note: {} is not from 1 to 3 but '{}': nothing is logged", kVariable, text));
    return 0;
}

}  // namespace

void log_memory(Memory& memory) {
    const int wanted = level();
    if (wanted == 0) {
        return;
    }
    memory.set_observer([&memory, wanted](std::string_view what) {
        const std::string text =
            fmt::format("memory: {}\n{}", what, describe(make_view(memory.cells()), wanted));
        std::fputs(text.c_str(), stderr);
    });
}

}  // namespace cellar::cli
