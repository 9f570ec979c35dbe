#pragma once

#include <string>
#include <string_view>

namespace cellar {

// `text` out of a file, fit for an error message: at most 80 bytes, and every byte that is not
// printable ASCII shown as '?', so that a file can neither flood nor command a terminal.
std::string printable(std::string_view text);

}  // namespace cellar
