#pragma once

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "state/head.h"
#include "testing/chunk_sealer.h"

namespace cellar::testing {

// How the rows of a sealed state stand in it.
enum class SealedRows {
    kStored,
    kPacked,   // sound frames
    kGarbage,  // what claims to be a frame, under a checksum that is right
};

// Makes a state of any head: all that a loader checks first (lengths, checksums, index, trailer) is
// right, so that the rest is reached. Rows are `pool`, over and over; after `budget` bytes of them
// the state ends.
class StateSealer {
public:
    StateSealer(std::span<const std::byte> pool, SealedRows rows, size_t budget)
        : pool_(pool), rows_(rows), budget_(budget) {}

    std::vector<std::byte> seal(std::span<const std::byte> head) {
        out_.put_chunk({ChunkHeader::kHead}, head);
        if (const auto decoded = decode_head(head)) {
            const auto done = for_each_piece(*decoded, [&](const StatePiece& piece) {
                return put_rows(piece, piece.count * decoded->row_bytes(piece.layer, piece.side));
            });
            if (done) put_end();
        }
        return {out_.bytes().begin(), out_.bytes().end()};
    }

private:
    Result<void> put_rows(const StatePiece& piece, size_t size) {
        ChunkHeader header{ChunkHeader::kRows, ChunkHeader::kStored,
                           piece.layer,        static_cast<uint32_t>(piece.side),
                           piece.first,        piece.count};
        const size_t n =
            rows_ == SealedRows::kGarbage && size > 0 ? std::min(size - 1, pool_.size()) : size;
        if (n > budget_) return fail(Code::kNoRoom, "the budget is spent");
        budget_ -= n;
        std::vector<std::byte> payload(n);
        for (size_t i = 0; i < n; i++)
            payload[i] = pool_.empty() ? std::byte{0} : pool_[at_++ % pool_.size()];
        if (rows_ == SealedRows::kPacked) {
            std::vector<std::byte> packed(ZSTD_compressBound(n));
            packed.resize(ZSTD_compress(packed.data(), packed.size(), payload.data(), n, 1));
            if (packed.size() < n) payload = packed;
        }
        header.codec = payload.size() < size ? ChunkHeader::kZstd : ChunkHeader::kStored;
        index_.push_back({out_.bytes().size(), payload.size(), piece.layer, header.side,
                          piece.first, piece.count});
        out_.put_chunk(header, payload);
        return {};
    }

    void put_end() {
        const uint64_t begin = out_.bytes().size();
        const auto entries = std::as_bytes(std::span(index_));
        ChunkHeader header{ChunkHeader::kIndex};
        header.count = static_cast<uint32_t>(index_.size());
        out_.put_chunk(header, entries);
        out_.put(Trailer{begin, out_.bytes().size() + sizeof(Trailer)});
    }

    const std::span<const std::byte> pool_;
    const SealedRows rows_;
    size_t budget_;
    size_t at_ = 0;
    ChunkSealer out_;
    std::vector<IndexEntry> index_;
};

}  // namespace cellar::testing
