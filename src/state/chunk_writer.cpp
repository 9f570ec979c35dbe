#include <zstd.h>

#include <algorithm>
#include <cassert>

#include "state/chunk_layout.h"
#include "state/chunks.h"

namespace cellar {
namespace {

// Keys and values hardly shrink: the fastest level gives nearly all there is.
constexpr int kLevel = 1;

std::span<const std::byte> bytes_of(const auto& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void ChunkWriter::FreeContext::operator()(ZSTD_CCtx_s* context) const {
    ZSTD_freeCCtx(context);
}

ChunkWriter::ChunkWriter(Sink& sink, bool compress) : sink_(sink), compress_(compress) {
}
ChunkWriter::~ChunkWriter() = default;

uint64_t ChunkWriter::frame_bytes(size_t head_bytes, uint64_t n_pieces) {
    return sizeof(Preamble) + kHeaderBytes + head_bytes + n_pieces * kHeaderBytes + kHeaderBytes +
           n_pieces * sizeof(IndexEntry) + sizeof(Trailer);
}

std::span<std::byte> ChunkWriter::payload(size_t size) {
    size_ = size;
    if (buffer_.size() < kHeaderBytes + size) buffer_.resize(kHeaderBytes + size);
    return std::span(buffer_).subspan(kHeaderBytes, size);
}

Result<void> ChunkWriter::write_head(const StateHead& head) {
    const Preamble preamble;
    if (auto written = sink_.write(bytes_of(preamble)); !written) return written;
    offset_ = sizeof preamble;
    const std::vector<std::byte> bytes = encode_head(head);
    std::copy(bytes.begin(), bytes.end(), payload(bytes.size()).begin());
    return write_chunk({ChunkHeader::kHead});
}

// Whether the payload shrinks; then `packed_` holds it.
Result<bool> ChunkWriter::pack() {
    if (!context_) context_.reset(ZSTD_createCCtx());
    if (!context_) return fail(Code::kIo, "no memory to compress with");
    if (packed_.size() < buffer_.size()) packed_.resize(buffer_.size());
    // Room for less than the payload: what does not shrink is an error to zstd.
    const size_t n =
        ZSTD_compressCCtx(context_.get(), packed_.data() + kHeaderBytes, size_ > 0 ? size_ - 1 : 0,
                          buffer_.data() + kHeaderBytes, size_, kLevel);
    if (ZSTD_isError(n)) return false;
    size_ = n;
    return true;
}

Result<void> ChunkWriter::write_piece(const StatePiece& piece) {
    ChunkHeader header{ChunkHeader::kRows, ChunkHeader::kStored,
                       piece.layer,        static_cast<uint32_t>(piece.side),
                       piece.first,        piece.count};
    const auto packed = compress_ && size_ <= kMostPacked ? pack() : Result<bool>(false);
    if (!packed) return tl::unexpected(packed.error());
    header.codec = *packed ? ChunkHeader::kZstd : ChunkHeader::kStored;
    index_.push_back({offset_, size_, piece.layer, header.side, piece.first, piece.count});
    return write_chunk(header);
}

Result<void> ChunkWriter::write_chunk(ChunkHeader header) {
    header.stored = size_;
    auto& buffer = header.codec == ChunkHeader::kZstd ? packed_ : buffer_;
    const auto whole = std::span(buffer).first(kHeaderBytes + size_);
    const auto checksum = checksum_of(header, whole.subspan(kHeaderBytes), seed_);
    std::memcpy(whole.data(), &header, sizeof header);
    std::memcpy(whole.data() + sizeof header, checksum.data(), sizeof checksum);
    seed_ = checksum[0];
    offset_ += whole.size();
    return sink_.write(whole);
}

Result<void> ChunkWriter::finish() {
    const uint64_t begin = offset_;
    const auto entries = std::as_bytes(std::span(index_));
    std::copy(entries.begin(), entries.end(), payload(entries.size()).begin());
    ChunkHeader header{ChunkHeader::kIndex};
    header.count = static_cast<uint32_t>(index_.size());
    if (auto written = write_chunk(header); !written) return written;
    const Trailer trailer{begin, offset_ + sizeof(Trailer)};
    return sink_.write(bytes_of(trailer));
}

}  // namespace cellar
