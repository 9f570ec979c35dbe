#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace cellar {

// A SHA-256.
using Digest = std::array<uint8_t, 32>;

std::string to_hex(const Digest& digest);

// What keys and values depend on beside the tokens. A state is loaded only where all of it is the
// same. Whoever owns the model fills it in; the memory knows none of it.
struct Identity {
    struct Adapter {
        Digest content{};
        float scale = 1.0f;

        friend bool operator==(const Adapter&, const Adapter&) = default;
    };

    std::string model;  // its name, for people: not compared
    Digest weights{};   // metadata and tensors
    Digest tokenizer{};
    Digest rope{};                  // bases, scalings, factors of all layers
    std::vector<Adapter> adapters;  // in the order in which they are applied

    friend bool operator==(const Identity&, const Identity&) = default;
};

// A model's name as it may be shown: a file's may be long, and may hold what terminals obey.
// Control characters become question marks, and no more than 80 bytes are left.
std::string shown_name(const std::string& model);

// Errors: kUnsupported with a sentence about the first difference, the most telling ones first.
Result<void> check_identity(const Identity& saved, const Identity& here);

}  // namespace cellar
