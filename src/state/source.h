#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.h"

namespace cellar {

// Where a state is read from, forwards.
class Source {
public:
    virtual ~Source() = default;

    // Fills `bytes`, or as much of it as there is before the end; returns how much. Errors: kIo.
    virtual Result<size_t> read(std::span<std::byte> bytes) = 0;

    // Passes over `n` bytes, or what there is. Errors: kIo.
    virtual Result<void> skip(uint64_t n) = 0;

    // Bytes from here to the end; nothing where that is not known (a pipe).
    virtual std::optional<uint64_t> remaining() const = 0;
};

// Reads from memory, which must outlive it.
class MemorySource : public Source {
public:
    explicit MemorySource(std::span<const std::byte> bytes) : left_(bytes) {}

    Result<size_t> read(std::span<std::byte> bytes) override {
        const size_t n = std::min(bytes.size(), left_.size());
        if (n > 0) std::memcpy(bytes.data(), left_.data(), n);
        left_ = left_.subspan(n);
        return n;
    }
    Result<void> skip(uint64_t n) override {
        left_ = left_.subspan(static_cast<size_t>(std::min<uint64_t>(n, left_.size())));
        return {};
    }
    std::optional<uint64_t> remaining() const override { return left_.size(); }

private:
    std::span<const std::byte> left_;
};

}  // namespace cellar
