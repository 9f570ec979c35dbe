#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/error.h"

namespace cellar {

// Where a state is written to, from its first byte to its last. A sink that is dropped before
// `finish` has succeeded leaves what stood there before.
class Sink {
public:
    virtual ~Sink() = default;

    // Errors: kIo with the system's reason; nothing more may be written then.
    virtual Result<void> write(std::span<const std::byte> bytes) = 0;

    // All was written: makes it what a reader finds. Errors: kIo.
    virtual Result<void> finish() = 0;
};

// Writes into memory.
class MemorySink : public Sink {
public:
    Result<void> write(std::span<const std::byte> bytes) override {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
        return {};
    }
    Result<void> finish() override { return {}; }

    const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    std::vector<std::byte> bytes_;
};

}  // namespace cellar
