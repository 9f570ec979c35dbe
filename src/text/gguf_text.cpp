#include "text/gguf_text.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace cellar {

namespace {

// Reads keys one after the other; the first error stays and stops the rest.
class Reader {
public:
    explicit Reader(const GgufFile& file) : file_(file) {}

    void read(std::string_view key, std::string& out) {
        if (auto value = take(file_.find_string(key))) out = *value;
    }
    void read(std::string_view key, std::vector<std::string>& out) {
        if (auto value = take(file_.find_strings(key))) out.assign(value->begin(), value->end());
    }
    void read(std::string_view key, std::vector<int32_t>& out) {
        if (auto value = take(file_.find_ints(key))) out = std::move(*value);
    }
    void read(std::string_view key, std::vector<float>& out) {
        if (auto value = take(file_.find_reals(key))) out = std::move(*value);
    }
    void read(std::string_view key, std::optional<int64_t>& out) {
        out = take(file_.find_integer(key));
    }
    void read(std::string_view key, std::optional<bool>& out) {
        out = take(file_.find_boolean(key));
    }

    Result<void> finish() { return std::move(state_); }

private:
    template <class T>
    std::optional<T> take(Result<std::optional<T>> found) {
        if (found) return std::move(*found);
        if (state_) state_ = pass(std::move(found));
        return std::nullopt;
    }

    const GgufFile& file_;
    Result<void> state_;
};

// Errors of the vocabulary do not know the file's name.
tl::unexpected<Error> named(const GgufFile& file, Error error) {
    error.message = fmt::format("{}: {}", file.path(), error.message);
    return tl::unexpected<Error>(std::move(error));
}

void read_roles(Reader& reader, VocabRoles& roles) {
    reader.read("tokenizer.ggml.bos_token_id", roles.bos);
    reader.read("tokenizer.ggml.eos_token_id", roles.eos);
    reader.read("tokenizer.ggml.eot_token_id", roles.eot);
    reader.read("tokenizer.ggml.eom_token_id", roles.eom);
    reader.read("tokenizer.ggml.unknown_token_id", roles.unk);
    reader.read("tokenizer.ggml.padding_token_id", roles.pad);
    reader.read("tokenizer.ggml.add_bos_token", roles.add_bos);
    reader.read("tokenizer.ggml.add_space_prefix", roles.add_space_prefix);
}

}  // namespace

Result<Vocab> load_vocab(const GgufFile& file) {
    VocabData data;
    Reader reader(file);
    reader.read("tokenizer.ggml.model", data.model);
    reader.read("tokenizer.ggml.pre", data.pre);
    reader.read("tokenizer.ggml.tokens", data.texts);
    reader.read("tokenizer.ggml.token_type", data.kinds);
    reader.read("tokenizer.ggml.scores", data.scores);
    reader.read("tokenizer.ggml.merges", data.merges);
    read_roles(reader, data.roles);
    if (auto read = reader.finish(); !read) return pass(std::move(read));

    auto vocab = Vocab::create(std::move(data));
    if (!vocab) return named(file, std::move(vocab).error());
    return vocab;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file) {
    auto model = file.find_string("tokenizer.ggml.model");
    if (!model) return pass(std::move(model));
    if (!*model) return named(file, {Code::kUnsupported, "the file has no tokenizer", {}});
    // Before the lists are read: those of a tokenizer that nobody knows may be anything.
    if (auto known = Tokenizer::check_model(**model); !known)
        return named(file, std::move(known).error());

    auto vocab = load_vocab(file);
    if (!vocab) return pass(std::move(vocab));
    auto tokenizer = Tokenizer::create(std::move(*vocab));
    if (!tokenizer) return named(file, std::move(tokenizer).error());
    return tokenizer;
}

Result<std::optional<std::string_view>> find_chat_template(const GgufFile& file) {
    return file.find_string("tokenizer.chat_template");
}

}  // namespace cellar
