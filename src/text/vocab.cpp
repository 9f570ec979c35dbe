#include "text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace cellar {

namespace {

// Tokens that end a generation, by the names that known models give them. The obvious ones become
// control tokens even where an old conversion lists them as something else; the others are common
// text (an HTML tag, a word in capitals) unless the file itself calls them control.
struct EndName {
    std::string_view text;
    bool obvious;
};

constexpr std::array kEndNames = {
    EndName{"<|eot_id|>", true},
    EndName{"<|eom_id|>", true},
    EndName{"<|im_end|>", true},
    EndName{"<|end|>", true},
    EndName{"<|return|>", true},
    EndName{"<|call|>", true},
    EndName{"<|endoftext|>", true},
    EndName{"<|end_of_text|>", true},
    EndName{"<|end_of_turn|>", true},
    EndName{"<end_of_turn>", true},
    EndName{"<end_of_utterance>", true},
    EndName{"<\xEF\xBD\x9C"
            "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
            true},
    EndName{"<|fim_pad|>", false},
    EndName{"<|repo_name|>", false},
    EndName{"<|file_sep|>", false},
    EndName{"</s>", false},
    EndName{"<eos>", false},
    EndName{"<EOT>", false},
    EndName{"[EOT]", false},
    EndName{"[EOS]", false},
};

tl::unexpected<Error> bad(std::string message) {
    return fail(Code::kBadFile, std::move(message));
}

// One element for each token, or none at all.
Result<void> check_count(std::string_view what, size_t count, size_t tokens) {
    if (count == 0 || count == tokens) return {};
    return bad(fmt::format("the vocabulary has {} {} for {} tokens", count, what, tokens));
}

Result<void> check_texts(const std::vector<std::string>& texts) {
    if (texts.empty()) return bad("the vocabulary has no tokens");
    if (texts.size() > size_t{std::numeric_limits<Token>::max()})
        return bad(fmt::format("the vocabulary has {} tokens: too many", texts.size()));
    const auto longest = std::find_if(texts.begin(), texts.end(), [](const std::string& text) {
        return text.size() > Vocab::kLongestText;
    });
    if (longest == texts.end()) return {};
    return bad(fmt::format("token {} is {} bytes long, where at most {} are allowed",
                           longest - texts.begin(), longest->size(), Vocab::kLongestText));
}

Result<void> check_kinds(const std::vector<int32_t>& kinds) {
    const auto wrong =
        std::find_if(kinds.begin(), kinds.end(), [](int32_t kind) { return kind < 0 || kind > 6; });
    if (wrong == kinds.end()) return {};
    return bad(
        fmt::format("token {} is of type {}, which does not exist", wrong - kinds.begin(), *wrong));
}

Result<void> check(const VocabData& data) {
    const size_t tokens = data.texts.size();
    auto checked = check_texts(data.texts);
    if (checked) checked = check_count("token types", data.kinds.size(), tokens);
    if (checked) checked = check_count("scores", data.scores.size(), tokens);
    if (checked) checked = check_kinds(data.kinds);
    return checked;
}

}  // namespace

Result<Vocab> Vocab::create(VocabData data) {
    if (auto checked = check(data); !checked) return pass(std::move(checked));
    const VocabRoles roles = data.roles;
    Vocab vocab(std::move(data));
    if (auto built = vocab.build_index(); !built) return pass(std::move(built));
    if (auto set = vocab.set_roles(roles); !set) return pass(std::move(set));
    return vocab;
}

Vocab::Vocab(VocabData data)
    : model_(std::move(data.model)),
      pre_(std::move(data.pre)),
      texts_(std::move(data.texts)),
      kinds_(texts_.size(), TokenKind::kNormal),
      scores_(std::move(data.scores)),
      merges_(std::move(data.merges)) {
    for (size_t i = 0; i < data.kinds.size(); ++i)
        kinds_[i] = static_cast<TokenKind>(data.kinds[i]);
}

Result<void> Vocab::build_index() {
    by_text_.reserve(texts_.size());
    for (Token token = 0; token < size(); ++token) {
        if (text(token).empty()) continue;
        const auto [known, added] = by_text_.emplace(text(token), token);
        if (!added)
            return bad(fmt::format("tokens {} and {} have the same text", known->second, token));
    }
    return {};
}

Result<void> Vocab::set_roles(const VocabRoles& roles) {
    std::optional<Token> eot, eom;
    const struct {
        std::string_view name;
        const std::optional<int64_t>& id;
        std::optional<Token>& token;
    } table[] = {{"BOS", roles.bos, bos_},        {"EOS", roles.eos, eos_},
                 {"end-of-turn", roles.eot, eot}, {"end-of-message", roles.eom, eom},
                 {"unknown", roles.unk, unk_},    {"padding", roles.pad, pad_}};
    for (const auto& role : table) {
        if (!role.id) continue;
        if (*role.id < 0 || *role.id >= size())
            return bad(fmt::format("the {} token is {}, but the vocabulary has {} tokens",
                                   role.name, *role.id, size()));
        role.token = static_cast<Token>(*role.id);
    }
    if (roles.add_bos.value_or(false) && !bos_)
        return bad("texts are to begin with a BOS token, but none is named");
    add_bos_ = roles.add_bos;
    add_space_prefix_ = roles.add_space_prefix;
    collect_ends(std::array{eos_, eot, eom});
    return {};
}

void Vocab::collect_ends(std::span<const std::optional<Token>> named) {
    for (const auto& token : named)
        if (token) ends_.push_back(*token);
    for (const EndName& end : kEndNames) {
        const auto token = find(end.text);
        if (!token || (!end.obvious && kind(*token) != TokenKind::kControl)) continue;
        // Otherwise a user could end the model's turn by typing the token's text.
        kinds_[index(*token)] = TokenKind::kControl;
        ends_.push_back(*token);
    }
    // Harmony (gpt-oss) ends each message of a reply with <|end|> and the reply with the others.
    if (find("<|return|>") && find("<|call|>")) std::erase(ends_, find("<|end|>").value_or(-1));
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
}

bool Vocab::is_control(Token token) const {
    return kind(token) == TokenKind::kControl || kind(token) == TokenKind::kUnknown;
}

std::optional<Token> Vocab::find(std::string_view text) const {
    const auto found = by_text_.find(text);
    if (found == by_text_.end()) return std::nullopt;
    return found->second;
}

bool Vocab::is_end(Token token) const {
    return std::binary_search(ends_.begin(), ends_.end(), token);
}

}  // namespace cellar
