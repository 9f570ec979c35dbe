#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace cellar::cli {

// What a command needs of a model file.
struct LoadedModel {
    GgufFile file;
    std::unique_ptr<Model> model;
    std::unique_ptr<Tokenizer> tokenizer;  // null unless it was asked for
};

enum class WithTokenizer { kNo, kYes };

Result<LoadedModel> load(const std::string& path, WithTokenizer with_tokenizer,
                         const std::vector<Offload>& offloads, const RopeOverrides& rope = {});

// How the model wants conversations written; nothing if its file does not say so (a base model).
// Errors: kUnsupported if what it says is not known. Needs the tokenizer.
Result<std::optional<ChatFormat>> find_chat_format(const LoadedModel& loaded);

// Ends ggml's own log on standard error: it has a line for every tensor that is repacked, and its
// errors come to us as errors.
void silence_ggml();

}  // namespace cellar::cli
