#include "text/chat_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

namespace cellar {

namespace {

class Template {
public:
    explicit Template(std::string_view text) : text_(text) {}

    std::string_view text() const { return text_; }

    bool has(std::string_view marker) const { return text_.find(marker) != std::string_view::npos; }
    bool has_all(std::initializer_list<std::string_view> markers) const {
        return std::all_of(markers.begin(), markers.end(),
                           [this](std::string_view marker) { return has(marker); });
    }
    bool has_any(std::initializer_list<std::string_view> markers) const {
        return std::any_of(markers.begin(), markers.end(),
                           [this](std::string_view marker) { return has(marker); });
    }

private:
    std::string_view text_;
};

// A newline stands in a template as itself or escaped; removes either from the front.
bool skip_newline(std::string_view& text) {
    for (const std::string_view newline : {std::string_view("\n"), std::string_view("\\n")}) {
        if (text.substr(0, newline.size()) != newline) continue;
        text.remove_prefix(newline.size());
        return true;
    }
    return false;
}

// A Jinja string literal's content, unescaped; nullopt if `text` goes beyond the literal's end.
std::optional<std::string> unescape_literal(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\'' || text[i] == '"') return std::nullopt;
        if (text[i] != '\\' || i + 1 == text.size()) {
            plain += text[i];
            continue;
        }
        const char c = text[++i];
        plain += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    return plain;
}

// ChatML templates with a default system message spell its whole turn in one literal:
// '<|im_start|>system\nYou are ...<|im_end|>\n'.
std::optional<std::string> find_default_system(std::string_view jinja) {
    constexpr std::string_view kOpen = "<|im_start|>system";
    for (size_t at = jinja.find(kOpen); at != std::string_view::npos; at = jinja.find(kOpen)) {
        jinja.remove_prefix(at + kOpen.size());
        std::string_view content = jinja;
        const size_t end = content.find("<|im_end|>");
        if (!skip_newline(content) || end == std::string_view::npos) continue;
        content = content.substr(0, content.find("<|im_end|>"));
        if (auto text = unescape_literal(content)) return text;
    }
    return std::nullopt;
}

ChatShape chatml(const Template& jinja) {
    const ChatTurn turn{"<|im_start|>{role}\n", "<|im_end|>\n"};
    ChatShape shape{"chatml", turn, turn, turn, "<|im_start|>assistant\n"};
    shape.default_system = find_default_system(jinja.text());
    return shape;
}

ChatShape phi4() {
    const ChatTurn turn{"<|im_start|>{role}<|im_sep|>", "<|im_end|>"};
    return {"phi4", turn, turn, turn, "<|im_start|>assistant<|im_sep|>"};
}

ChatShape llama3(const Template& jinja) {
    const ChatTurn turn{"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>", true};
    ChatShape shape{"llama3", turn, turn, turn,
                    "<|start_header_id|>assistant<|end_header_id|>\n\n"};
    // Llama 3.1 and later tell the model two dates in every system turn, and always have one. The
    // second is the template's own for callers without a clock.
    if (jinja.has("Cutting Knowledge Date: December 2023")) {
        shape.system_preface = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
        shape.default_system = "";
    }
    return shape;
}

ChatShape gemma() {
    ChatShape shape{"gemma",
                    {"", "\n\n"},
                    {"<start_of_turn>user\n", "<end_of_turn>\n", true},
                    {"<start_of_turn>model\n", "<end_of_turn>\n", true},
                    "<start_of_turn>model\n"};
    shape.system_in_user = true;
    return shape;
}

ChatShape phi3() {
    return {"phi3",
            {"<|system|>\n", "<|end|>\n"},
            {"<|user|>\n", "<|end|>\n"},
            {"<|assistant|>\n", "<|end|>\n"},
            "<|assistant|>\n"};
}

ChatShape zephyr(const Template& jinja, std::string_view eos) {
    const std::string close =
        jinja.has("<|endoftext|>") ? "<|endoftext|>\n" : std::string(eos) + "\n";
    return {"zephyr",
            {"<|system|>\n", close},
            {"<|user|>\n", close},
            {"<|assistant|>\n", close},
            "<|assistant|>\n"};
}

ChatShape llama2(std::string_view eos) {
    ChatShape shape{"llama2",
                    {"<<SYS>>\n", "\n<</SYS>>\n\n"},
                    {"[INST] ", " [/INST]", true},
                    {" ", " " + std::string(eos), true},
                    ""};
    shape.system_in_user = true;
    shape.between = "<s>";
    return shape;
}

// Mistral's formats differ in white space alone. It matters: " [INST]" is not "[INST]".
ChatShape mistral(const Template& jinja, std::string_view eos) {
    const std::string end(eos);
    ChatShape shape{"mistral", {"", "\n\n"}, {"[INST] ", " [/INST]"}, {"", end}, ""};
    shape.system_in_user = true;
    if (jinja.has("[SYSTEM_PROMPT]")) {
        const std::string space = jinja.has_any({"'[INST] '", "\"[INST] \""}) ? " " : "";
        shape.system = {"[SYSTEM_PROMPT]" + space, "[/SYSTEM_PROMPT]"};
        shape.user = {"[INST]" + space, "[/INST]"};
        shape.assistant = {space, end};
        shape.system_in_user = false;
    } else if (jinja.has("' [INST] '")) {
        shape.user = {" [INST] ", " [/INST]"};
        shape.assistant = {" ", end};
    } else if (jinja.has("[AVAILABLE_TOOLS]") && jinja.has("\"[INST]\"")) {
        shape.user = {"[INST]", "[/INST]"};
    } else if (jinja.has("[AVAILABLE_TOOLS]")) {
        shape.user = {"[INST] ", "[/INST]"};
        shape.assistant = {" ", end, true};
    } else if (jinja.has("eos_token + ' '")) {
        shape.assistant.close += " ";
    }
    return shape;
}

// Whether the user's turn, as the template writes it, ends with the end of sequence. Many formats
// have <|user|>; this is what tells Zephyr's.
bool closes_user_with_eos(std::string_view jinja) {
    constexpr std::string_view kUser = "<|user|>";
    for (size_t at = jinja.find(kUser); at != std::string_view::npos; at = jinja.find(kUser)) {
        jinja.remove_prefix(at + kUser.size());
        const Template expression(jinja.substr(0, jinja.find("}}")));
        if (expression.has_any({"eos_token", "</s>", "<|endoftext|>"})) return true;
    }
    return false;
}

// Searching is quadratic in what a hostile file may repeat; the longest template we know of has 17
// KB.
constexpr size_t kLongestTemplate = size_t{1} << 18;

}  // namespace

Result<ChatShape> recognise_chat(std::string_view text, std::string_view eos) {
    if (text.size() > kLongestTemplate)
        return fail(Code::kUnsupported,
                    fmt::format("the model's chat template has {} bytes, where at most {} are "
                                "looked at; --raw sends the prompt as it is",
                                text.size(), kLongestTemplate));
    const Template jinja(text);
    if (jinja.has_all({"<|im_start|>", "<|im_sep|>"})) return phi4();
    if (jinja.has("<|im_start|>") && !jinja.has("<end_of_utterance>")) return chatml(jinja);
    if (jinja.has_all({"<|start_header_id|>", "<|end_header_id|>"})) return llama3(jinja);
    if (jinja.has_all({"<start_of_turn>", "<end_of_turn>"})) return gemma();
    if (jinja.has_all({"[INST]", "<<SYS>>"})) return llama2(eos);
    if (jinja.has("[INST]")) return mistral(jinja, eos);
    if (jinja.has_all({"<|user|>", "<|assistant|>", "<|end|>"})) return phi3();
    if (jinja.has("<|assistant|>") && closes_user_with_eos(text)) return zephyr(jinja, eos);
    return fail(Code::kUnsupported,
                "the model's chat template is of no known family (chatml, llama3, gemma, llama2, "
                "mistral, phi3, phi4, zephyr); --raw sends the prompt as it is");
}

}  // namespace cellar
