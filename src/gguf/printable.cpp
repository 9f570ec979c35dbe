#include "gguf/printable.h"

namespace cellar {

namespace {

constexpr size_t kMaxShown = 80;

}  // namespace

std::string printable(std::string_view text) {
    std::string shown(text.substr(0, kMaxShown));
    for (char& c : shown) {
        if (c < ' ' || c > '~') c = '?';
    }
    if (text.size() > kMaxShown) shown += "...";
    return shown;
}

}  // namespace cellar
