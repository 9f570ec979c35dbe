#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/writer.h"

namespace cellar::cli {

// What states of this model depend on: digests are remembered in the user's cache folder.
Identity identity_of(const LoadedModel& loaded, const Memory& memory);

// Writes the session to a file that appears under its name when it is whole. `text` begins with
// what the session holds.
Result<void> save_session(const Writer& writer, SessionId session, std::span<const Token> text,
                          const std::string& path, bool compress);

// Loads it into the session; returns its text.
Result<std::vector<Token>> load_session(const Writer& writer, SessionId session,
                                        const std::string& path, bool convert);

}  // namespace cellar::cli
