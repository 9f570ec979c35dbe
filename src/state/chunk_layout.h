#pragma once

#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "state/chunks.h"

namespace cellar {

// What the writer and the reader of chunks agree on.

// A carriage return and a line feed, which transfers as text do not leave alone.
inline constexpr std::array<char, 8> kMagic = {'C', 'E', 'L', 'L', 'A', 'R', '\r', '\n'};
inline constexpr std::array<char, 8> kEndMagic = {'R', 'A', 'L', 'L', 'E', 'C', '\r', '\n'};

struct Preamble {
    std::array<char, 8> magic = kMagic;
    uint32_t version = kStateVersion;
    uint32_t reserved = 0;
};
static_assert(sizeof(Preamble) == 16);

struct Trailer {
    uint64_t index_offset = 0;  // of the index chunk
    uint64_t size = 0;          // of the whole state
    std::array<char, 8> magic = kEndMagic;

    friend bool operator==(const Trailer&, const Trailer&) = default;
};
static_assert(sizeof(Trailer) == 24);

// Rows of a chunk that may be compressed: a few bytes may claim that they become as many.
inline constexpr size_t kMostPacked = size_t{1} << 20;

inline constexpr size_t kHeaderBytes = sizeof(ChunkHeader) + 16;

// XXH3-128, the low 64 bits first. The header is part of it through the seed, and so is, through
// `seed`, the chunk before: a state mixed of two, each chunk sound, does not pass.
inline std::array<uint64_t, 2> checksum_of(const ChunkHeader& header,
                                           std::span<const std::byte> payload, uint64_t seed) {
    const uint64_t place = XXH3_64bits_withSeed(&header, sizeof header, seed);
    const XXH128_hash_t hash = XXH3_128bits_withSeed(payload.data(), payload.size(), place);
    return {hash.low64, hash.high64};
}

}  // namespace cellar
