#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gguf/printable.h"
#include "text/utf8.h"

namespace cellar {

namespace {

// The patterns are those that the models' own tokenizer files state. `(?i:..)` is written out as
// classes: ignoring case by Unicode would let the contraction 's match U+017F, the long s.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";

// What llama.cpp cuts by when a file names no pre-tokenizer or "default".
constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kNumber = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";

constexpr std::array kGpt2Stages = {kGpt2};
constexpr std::array kSmollmStages = {kDigit, kGpt2};
constexpr std::array kLlama3Stages = {kLlama3};
constexpr std::array kQwen2Stages = {kQwen2};
constexpr std::array kDefaultStages = {kPunctuation, kGpt2, kNumber, kThreeDigits};

enum Trait : unsigned { kPlain = 0, kWholeWords = 1, kAddsBos = 2 };

struct Known {
    std::string_view name;
    std::span<const std::string_view> stages;
    unsigned traits;
};

constexpr std::array kKnown = {
    Known{"gpt-2", kGpt2Stages, kPlain},
    Known{"gpt2", kGpt2Stages, kPlain},
    Known{"phi-2", kGpt2Stages, kPlain},
    Known{"mpt", kGpt2Stages, kPlain},
    Known{"olmo", kGpt2Stages, kPlain},
    Known{"jais", kGpt2Stages, kPlain},
    Known{"gigachat", kGpt2Stages, kPlain},
    Known{"mellum", kGpt2Stages, kPlain},
    Known{"exaone4", kGpt2Stages, kPlain},
    Known{"trillion", kGpt2Stages, kPlain},
    Known{"granite-docling", kGpt2Stages, kPlain},
    Known{"smollm", kSmollmStages, kPlain},
    Known{"starcoder", kSmollmStages, kPlain},
    Known{"refact", kSmollmStages, kPlain},
    Known{"command-r", kSmollmStages, kPlain},
    Known{"codeshell", kSmollmStages, kPlain},
    Known{"exaone", kSmollmStages, kPlain},
    Known{"minerva-7b", kSmollmStages, kPlain},
    Known{"mellum2", kSmollmStages, kPlain},
    Known{"llama-bpe", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"llama3", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"llama-v3", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"falcon3", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"falcon-h1", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"pixtral", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"midm-2.0", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"lfm2", kLlama3Stages, kWholeWords | kAddsBos},
    Known{"dbrx", kLlama3Stages, kPlain},
    Known{"smaug-bpe", kLlama3Stages, kPlain},
    Known{"chatglm-bpe", kLlama3Stages, kPlain},
    Known{"glm4", kLlama3Stages, kWholeWords},
    Known{"qwen2", kQwen2Stages, kPlain},
    Known{"deepseek-r1-qwen", kQwen2Stages, kPlain},
    Known{"megrez", kQwen2Stages, kPlain},
    Known{"stablelm2", kQwen2Stages, kPlain},
    Known{"hunyuan", kQwen2Stages, kPlain},
    Known{"grok-2", kQwen2Stages, kPlain},
    Known{"default", kDefaultStages, kPlain},
    Known{"", kDefaultStages, kPlain},
};

std::string known_names() {
    std::string names;
    for (const Known& known : kKnown) {
        if (known.name.empty()) continue;
        if (!names.empty()) names += ", ";
        names += known.name;
    }
    return names;
}

// One split() at work: the searches, one for each stage.
class Cutter {
public:
    Cutter(std::span<const Regex> stages, const Pretokenizer::Sink& word)
        : searches_(stages.begin(), stages.end()), word_(word) {}

    // Cuts well-formed UTF-8 by the stages from `stage` on.
    void cut(std::string_view text, size_t stage = 0) {
        if (stage == searches_.size()) return word_(text);
        size_t at = 0;
        while (const auto match = searches_[stage].next(text, at)) {
            if (match->begin > at) cut(text.substr(at, match->begin - at), stage + 1);
            cut(text.substr(match->begin, match->end - match->begin), stage + 1);
            at = match->end;
        }
        if (at < text.size()) cut(text.substr(at), stage + 1);
    }

private:
    std::vector<RegexSearch> searches_;
    const Pretokenizer::Sink& word_;
};

// How many bytes at the beginning of `text` belong to no character.
size_t broken_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const Utf8Step step = utf8_step(text.substr(at));
        if (step.kind == Utf8Step::Kind::kComplete) break;
        at += step.length;
    }
    return at;
}

}  // namespace

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
    const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                    [&](const Known& each) { return each.name == name; });
    if (known == kKnown.end())
        return fail(Code::kUnsupported, fmt::format("unknown pre-tokenizer '{}'; known are: {}",
                                                    printable(name), known_names()));
    Pretokenizer made;
    made.takes_whole_words_ = (known->traits & kWholeWords) != 0;
    made.adds_bos_ = (known->traits & kAddsBos) != 0;
    for (const std::string_view pattern : known->stages) {
        auto regex = Regex::compile(pattern);
        if (!regex) return pass(std::move(regex));
        made.stages_.push_back(std::move(*regex));
    }
    return made;
}

void Pretokenizer::split(std::string_view text, const Sink& word) const {
    Cutter cutter(stages_, word);
    while (!text.empty()) {
        const size_t valid = utf8_valid_prefix(text);
        if (valid > 0) cutter.cut(text.substr(0, valid));
        text.remove_prefix(valid);
        const size_t broken = broken_prefix(text);
        if (broken > 0) word(text.substr(0, broken));
        text.remove_prefix(broken);
    }
}

}  // namespace cellar
