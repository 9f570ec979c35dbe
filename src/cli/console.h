#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace cellar::cli {

// Writes all of `text` to standard output, at once. Errors: kIo with the system's reason, also when
// a pipe's reader has gone (SIGPIPE is ignored once `handle_signals` was called).
Result<void> print(std::string_view text);

// Writes a line to standard error: "cellar: ", then the sentence.
void complain(std::string_view sentence);

// Everything up to the end of standard input, or of a file; any bytes. Errors: kIo.
Result<std::string> read_stdin();
Result<std::string> read_file(const std::string& path);

// The next line of standard input without its end, "\n" or "\r\n"; nothing at the end of the input
// or when Ctrl-C came instead.
std::optional<std::string> read_line();

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// From now on the first Ctrl-C only sets a flag; a second one before `take_interrupt` ends the
// process as usual.
void handle_signals();
bool interrupted();
// Whether Ctrl-C came since the last call.
bool take_interrupt();

}  // namespace cellar::cli
