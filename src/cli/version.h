#pragma once

namespace cellar::cli {

// The project's version in CMakeLists.txt; tests/cli holds the two together.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace cellar::cli
