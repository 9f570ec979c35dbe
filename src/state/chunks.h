#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "state/head.h"
#include "state/sink.h"
#include "state/source.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace cellar {

// The frame of a state: a preamble, chunks with a checksum each, an index and a trailer. See
// docs/state-format.md.

inline constexpr uint32_t kStateVersion = 1;

// What stands in front of a chunk's payload, and is covered by its checksum.
struct ChunkHeader {
    enum Type : uint32_t { kHead = 1, kRows = 2, kIndex = 3 };
    enum Codec : uint32_t { kStored = 0, kZstd = 1 };

    uint32_t type = kHead;
    uint32_t codec = kStored;
    uint32_t layer = 0;  // of rows, like the next three
    uint32_t side = 0;
    uint32_t first = 0;
    uint32_t count = 0;
    uint64_t stored = 0;  // bytes of the payload as it stands in the file
};
static_assert(sizeof(ChunkHeader) == 32);

// Where a chunk of rows stands.
struct IndexEntry {
    uint64_t offset = 0;  // of its header, from the state's beginning
    uint64_t stored = 0;
    uint32_t layer = 0;
    uint32_t side = 0;
    uint32_t first = 0;
    uint32_t count = 0;

    friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};
static_assert(sizeof(IndexEntry) == 32);

// Writes a state, chunk by chunk, through one buffer.
class ChunkWriter {
public:
    // `compress`: rows whose zstd is smaller are written so.
    ChunkWriter(Sink& sink, bool compress);
    ~ChunkWriter();

    Result<void> write_head(const StateHead& head);

    // Where the bytes of the next piece go, before `write_piece`.
    std::span<std::byte> payload(size_t size);
    Result<void> write_piece(const StatePiece& piece);

    // Index and trailer.
    Result<void> finish();

    // Bytes of a state beside its pieces' payloads.
    static uint64_t frame_bytes(size_t head_bytes, uint64_t n_pieces);

private:
    struct FreeContext {
        void operator()(ZSTD_CCtx_s* context) const;
    };

    Result<void> write_chunk(ChunkHeader header);
    Result<bool> pack();

    Sink& sink_;
    const bool compress_;
    uint64_t seed_ = 0;              // of the next checksum: binds each chunk to all before it
    uint64_t offset_ = 0;            // bytes written
    size_t size_ = 0;                // of the payload
    std::vector<std::byte> buffer_;  // header, checksum, payload: one write
    std::vector<std::byte> packed_;  // the same, compressed
    std::vector<IndexEntry> index_;
    std::unique_ptr<ZSTD_CCtx_s, FreeContext> context_;
};

// Reads one back from bytes that may be anything. Everything is checked before it is handed out;
// memory is taken for what is there, not for what a length says. Errors: kBadFile for damage, a
// state that ends early and one that is none; kUnsupported for another version; kIo.
class ChunkReader {
public:
    explicit ChunkReader(Source& source);
    ~ChunkReader();

    Result<StateHead> read_head();

    // The next piece, which must be this one, of `size` bytes. Valid until the next call.
    Result<std::span<const std::byte>> read_piece(const StatePiece& piece, size_t size);

    // Passes over it instead: its payload is not checked.
    Result<void> skip_piece(const StatePiece& piece, size_t size);

    // Checks index and trailer. The source stands behind the state then.
    Result<void> finish();

    uint64_t offset() const { return offset_; }  // bytes read

private:
    struct FreeContext {
        void operator()(ZSTD_DCtx_s* context) const;
    };

    Result<void> read_exactly(std::span<std::byte> bytes);
    Result<void> read_payload(uint64_t size);
    Result<ChunkHeader> read_header();
    Result<ChunkHeader> read_piece_header(const StatePiece& piece, size_t size);
    Result<void> check(const ChunkHeader& header);
    Result<std::span<const std::byte>> unpack(size_t size);

    Source& source_;
    uint64_t seed_ = 0;  // as the writer's
    uint64_t offset_ = 0;
    size_t size_ = 0;  // of the payload
    std::vector<std::byte> buffer_;
    std::vector<std::byte> unpacked_;
    std::array<uint64_t, 2> checksum_ = {};  // of the chunk whose header was read last
    std::vector<IndexEntry> index_;
    std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
};

}  // namespace cellar
