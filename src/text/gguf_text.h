#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace cellar {

// The vocabulary that a GGUF file's `tokenizer.ggml.*` keys describe.
// Errors: kBadFile if keys are missing, have the wrong type or contradict each other.
Result<Vocab> load_vocab(const GgufFile& file);

// The tokenizer of a GGUF file. Errors: kUnsupported if the file has none or one of a kind that is
// not known (such a model can still be run on token ids); kBadFile as load_vocab.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file);

// The Jinja text of the model's chat template, for ChatFormat; nullopt if the file has none.
// Errors: kBadFile if the key is not a string. Lives as long as the file.
Result<std::optional<std::string_view>> find_chat_template(const GgufFile& file);

}  // namespace cellar
