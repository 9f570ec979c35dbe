#pragma once

namespace cellar::cli {

// The whole of `cellar`: reads the command line, runs a command. Returns the exit code: 0, 1 for
// what failed, 2 for a command line that makes no sense; one sentence on standard error says why.
int run(int argc, const char* const* argv);

}  // namespace cellar::cli
