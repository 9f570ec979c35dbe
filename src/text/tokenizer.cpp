#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "gguf/printable.h"
#include "text/bpe_tokenizer.h"
#include "text/spm_tokenizer.h"

namespace cellar {

namespace {

constexpr std::string_view kBpe = "gpt2";
constexpr std::string_view kSpm = "llama";

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab vocab) {
    if (auto known = check_model(vocab.model()); !known) return pass(std::move(known));
    if (vocab.model() == kSpm) return SpmTokenizer::create(std::move(vocab));
    return BpeTokenizer::create(std::move(vocab));
}

Result<void> Tokenizer::check_model(std::string_view model) {
    if (model == kBpe || model == kSpm) return {};
    return fail(Code::kUnsupported, fmt::format("unknown tokenizer '{}'; known are: {}, {}",
                                                printable(model), kBpe, kSpm));
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    const TextPiece piece{text, options.parse_special};
    return encode_pieces({&piece, 1}, options.add_bos);
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool show_control) const {
    std::string text;
    bool drop_space = adds_space();
    for (const Token token : tokens) {
        if (!vocab().contains(token)) continue;
        const bool control = vocab().is_control(token);
        std::string_view bytes = token_bytes(token);
        if (!control && std::exchange(drop_space, false) && bytes.starts_with(' '))
            bytes.remove_prefix(1);
        if (show_control || !control) text += bytes;
    }
    return text;
}

}  // namespace cellar
