#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "state/bytes.h"
#include "state/chunk_layout.h"
#include "state/chunks.h"

namespace cellar::testing {

// The bytes of a state, chunk by chunk, of whatever a test puts there: lengths and chained
// checksums are right.
class ChunkSealer {
public:
    ChunkSealer() { put(Preamble{}); }

    void put_chunk(ChunkHeader header, std::span<const std::byte> payload) {
        header.stored = payload.size();
        const auto sum = checksum_of(header, payload, seed_);
        seed_ = sum[0];
        out_.put(header);
        out_.put(sum);
        out_.put_all(payload);
    }

    template <class T>
    void put(const T& value) {
        out_.put(value);
    }

    std::span<const std::byte> bytes() const { return out_.bytes(); }

private:
    ByteWriter out_;
    uint64_t seed_ = 0;
};

}  // namespace cellar::testing
