#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace cellar {

// How one role's turn is written: open, content, close.
struct ChatTurn {
    std::string open;  // "{role}" in it stands for the role's name
    std::string close;
    bool trim = false;  // white space around the content is left out
};

// A chat format as data: what stands around the contents of messages.
struct ChatShape {
    std::string_view name;
    ChatTurn system;
    ChatTurn user;
    ChatTurn assistant;
    std::string generation;           // opens the reply that is to be generated
    std::string between = {};         // stands between a reply and the user's next turn
    bool system_in_user = false;      // a system turn is written inside the next user's
    std::string system_preface = {};  // begins the content of a system turn that comes first
    std::optional<std::string> default_system = {};  // for conversations that begin without one
};

// Recognises the family that a Jinja chat template belongs to by its markers, and the variants of
// a family by telling details. `eos` is what the template writes as `eos_token`.
// Errors: kUnsupported if no family is recognised.
Result<ChatShape> recognise_chat(std::string_view jinja, std::string_view eos);

}  // namespace cellar
