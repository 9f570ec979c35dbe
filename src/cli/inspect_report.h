#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gguf/gguf_file.h"
#include "state/inspection.h"

namespace cellar::cli {

// What a state says of itself: for programs, and for people.
nlohmann::ordered_json report_state(const StateInspection& inspection);
std::string text_of_state(const StateInspection& inspection);

// What a model file holds: sizes, tensors by type, digests, all metadata. O(file), unless its
// digests are remembered.
nlohmann::ordered_json report_gguf(const GgufFile& file);
std::string text_of_gguf(const GgufFile& file);

}  // namespace cellar::cli
