#include "state/identity.h"

#include <fmt/format.h>

namespace cellar {
namespace {

constexpr size_t kShownBytes = 80;

std::string short_hex(const Digest& digest) {
    return to_hex(digest).substr(0, 12);
}

tl::unexpected<Error> differs(const char* what, const Digest& saved, const Digest& here) {
    return fail(Code::kUnsupported, fmt::format("the state was saved with {} ({}), not with this "
                                                "one ({})",
                                                what, short_hex(saved), short_hex(here)));
}

Result<void> check_adapters(const Identity& saved, const Identity& here) {
    if (saved.adapters.size() != here.adapters.size())
        return fail(Code::kUnsupported, fmt::format("the state was saved with {} adapters, not {}",
                                                    saved.adapters.size(), here.adapters.size()));
    for (size_t i = 0; i < saved.adapters.size(); i++) {
        const Identity::Adapter &old = saved.adapters[i], &now = here.adapters[i];
        if (old.content != now.content) return differs("another adapter", old.content, now.content);
        if (!(old.scale == now.scale))
            return fail(Code::kUnsupported,
                        fmt::format("the state was saved with adapter {} at scale {}, not {}", i,
                                    old.scale, now.scale));
    }
    return {};
}

}  // namespace

std::string to_hex(const Digest& digest) {
    std::string hex;
    for (const uint8_t byte : digest)
        hex += fmt::format("{:02x}", byte);
    return hex;
}

std::string shown_name(const std::string& model) {
    std::string shown = model.substr(0, kShownBytes);
    for (char& c : shown)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
    return shown;
}

// A model file's digest covers its tokenizer and rope settings too: where these differ, that is
// what to say.
Result<void> check_identity(const Identity& saved, const Identity& here) {
    if (saved.tokenizer != here.tokenizer)
        return differs("another tokenizer", saved.tokenizer, here.tokenizer);
    if (saved.rope != here.rope) return differs("other rope settings", saved.rope, here.rope);
    if (auto same = check_adapters(saved, here); !same) return same;
    if (saved.weights != here.weights)
        return fail(Code::kUnsupported,
                    fmt::format("the state was saved with another model, {} ({}), not {} ({})",
                                shown_name(saved.model), short_hex(saved.weights),
                                shown_name(here.model), short_hex(here.weights)));
    return {};
}

}  // namespace cellar
