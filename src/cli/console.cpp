#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

namespace cellar::cli {

namespace {

volatile std::sig_atomic_t g_interrupted = 0;  // a handler can reach nothing else

void on_interrupt(int) {
    g_interrupted = 1;
}

// Without SA_RESTART, so that a read that waits for the user returns.
void catch_interrupt() {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
}

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

Result<std::string> read_all(std::FILE* file, std::string_view what) {
    std::string text;
    char buffer[1 << 16];
    while (const size_t n = std::fread(buffer, 1, sizeof buffer, file)) {
        text.append(buffer, n);
    }
    if (std::ferror(file)) {
        return fail(Code::kIo, fmt::format("{}: cannot read it: {}", what, std::strerror(errno)));
    }
    return text;
}

}  // namespace

Result<void> print(std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail(Code::kIo,
                        fmt::format("cannot write to standard output: {}", std::strerror(errno)));
        }
        text.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

void complain(std::string_view sentence) {
    fmt::print(stderr, "cellar: {}\n", sentence);
}

Result<std::string> read_stdin() {
    return read_all(stdin, "standard input");
}

Result<std::string> read_file(const std::string& path) {
    const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
    if (!file) {
        return fail(Code::kIo, fmt::format("{}: cannot read it: {}", path, std::strerror(errno)));
    }
    return read_all(file.get(), path);
}

std::optional<std::string> read_line() {
    std::string line;
    int c = 0;
    while ((c = std::getc(stdin)) != EOF && c != '\n') {
        line.push_back(static_cast<char>(c));
    }
    if (c == EOF && (line.empty() || interrupted())) {
        return std::nullopt;
    }
    if (!line.empty() && line.back() == '\r') {
        line.pop_back();
    }
    return line;
}

bool stdin_is_terminal() {
    return isatty(STDIN_FILENO) != 0;
}

bool stdout_is_terminal() {
    return isatty(STDOUT_FILENO) != 0;
}

bool stderr_is_terminal() {
    return isatty(STDERR_FILENO) != 0;
}

void handle_signals() {
    std::signal(SIGPIPE, SIG_IGN);
    catch_interrupt();
}

bool interrupted() {
    return g_interrupted != 0;
}

bool take_interrupt() {
    const bool was = interrupted();
    if (was) {
        g_interrupted = 0;
        catch_interrupt();
    }
    return was;
}

}  // namespace cellar::cli
