#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "state/identity.h"

struct evp_md_ctx_st;

namespace cellar {

// A digest that takes its bytes in pieces.
class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void add(std::span<const std::byte> bytes);
    // The text's length, then the text: so that pieces cannot be cut in another way.
    void add_text(std::string_view text);
    void add_number(uint64_t number);

    // Ends it.
    Digest finish();

private:
    evp_md_ctx_st* context_;
};

}  // namespace cellar
