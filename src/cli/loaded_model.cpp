#include "cli/loaded_model.h"

#include <utility>

#include "text/gguf_text.h"

namespace cellar::cli {

Result<LoadedModel> load(const std::string& path, WithTokenizer with_tokenizer,
                         const std::vector<Offload>& offloads, const RopeOverrides& rope) {
    auto file = GgufFile::open(path);
    if (!file) {
        return pass(std::move(file));
    }
    // The tokenizer first: it is quick, and what is wrong with a file had better show soon.
    std::unique_ptr<Tokenizer> tokenizer;
    if (with_tokenizer == WithTokenizer::kYes) {
        auto made = load_tokenizer(*file);
        if (!made) {
            return pass(std::move(made));
        }
        tokenizer = *std::move(made);
    }
    LoadOptions options;
    options.rope = rope;
    options.offloads = offloads;
    auto model = load_model(*file, options);
    if (!model) {
        return pass(std::move(model));
    }
    return LoadedModel{*std::move(file), *std::move(model), std::move(tokenizer)};
}

Result<std::optional<ChatFormat>> find_chat_format(const LoadedModel& loaded) {
    auto jinja = find_chat_template(loaded.file);
    if (!jinja) {
        return pass(std::move(jinja));
    }
    if (!*jinja) {
        return std::nullopt;
    }
    const Vocab& vocab = loaded.tokenizer->vocab();
    auto format = vocab.eos() ? ChatFormat::from_template(**jinja, vocab.text(*vocab.eos()))
                              : ChatFormat::from_template(**jinja);
    if (!format) {
        return pass(std::move(format));
    }
    return *std::move(format);
}

void silence_ggml() {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
}

}  // namespace cellar::cli
