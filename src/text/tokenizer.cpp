#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "gguf/printable.h"
#include "text/bpe_tokenizer.h"

namespace cellar {

namespace {

constexpr std::string_view kBpe = "gpt2";

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab vocab) {
    if (auto known = check_model(vocab.model()); !known) return pass(std::move(known));
    return BpeTokenizer::create(std::move(vocab));
}

Result<void> Tokenizer::check_model(std::string_view model) {
    if (model == kBpe) return {};
    return fail(Code::kUnsupported,
                fmt::format("unknown tokenizer '{}'; known is: {}", printable(model), kBpe));
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    const TextPiece piece{text, options.parse_special};
    return encode_pieces({&piece, 1}, options.add_bos);
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool show_control) const {
    std::string text;
    for (const Token token : tokens) {
        if (!vocab().contains(token)) continue;
        if (show_control || !vocab().is_control(token)) text += token_bytes(token);
    }
    return text;
}

}  // namespace cellar
