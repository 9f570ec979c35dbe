#include "engine/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <new>

namespace cellar {

// OpenSSL's calls fail here only for want of memory.
Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) {
        EVP_MD_CTX_free(context_);
        throw std::bad_alloc();
    }
}

Sha256::~Sha256() {
    EVP_MD_CTX_free(context_);
}

void Sha256::add(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_, bytes.data(), bytes.size());
}

void Sha256::add_text(std::string_view text) {
    add_number(text.size());
    add(std::as_bytes(std::span(text)));
}

void Sha256::add_number(uint64_t number) {
    std::array<std::byte, 8> bytes;
    for (size_t i = 0; i < bytes.size(); i++) {
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    }
    add(bytes);
}

Digest Sha256::finish() {
    Digest digest;
    EVP_DigestFinal_ex(context_, digest.data(), nullptr);
    return digest;
}

}  // namespace cellar
