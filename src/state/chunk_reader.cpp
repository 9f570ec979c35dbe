#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>

#include "state/chunk_layout.h"
#include "state/chunks.h"

namespace cellar {
namespace {

// Where nobody knows how many bytes there are, memory is taken for as many as have come, and at
// least for so many.
constexpr size_t kStep = size_t{1} << 20;

tl::unexpected<Error> damaged(const std::string& what) {
    return fail(Code::kBadFile, "the state is damaged: " + what);
}

}  // namespace

void ChunkReader::FreeContext::operator()(ZSTD_DCtx_s* context) const {
    ZSTD_freeDCtx(context);
}

ChunkReader::ChunkReader(Source& source) : source_(source) {
}
ChunkReader::~ChunkReader() = default;

Result<void> ChunkReader::read_exactly(std::span<std::byte> bytes) {
    const auto n = source_.read(bytes);
    if (!n) return tl::unexpected(n.error());
    offset_ += *n;
    if (*n < bytes.size())
        return fail(Code::kBadFile, fmt::format("the state ends early, after {} bytes", offset_));
    return {};
}

Result<void> ChunkReader::read_payload(uint64_t size) {
    const auto left = source_.remaining();
    if (left && size > *left)
        return fail(Code::kBadFile,
                    fmt::format("the state ends early: {} more bytes are to come, {} are there",
                                size, *left));
    size_ = 0;
    while (size_ < size) {
        const uint64_t step = left ? size : std::max(kStep, size_);
        const auto n = static_cast<size_t>(std::min<uint64_t>(step, size - size_));
        if (buffer_.size() < size_ + n) {
            buffer_.reserve(size_ + n);  // exactly: resize alone might take twice as much
            buffer_.resize(size_ + n);
        }
        if (auto read = read_exactly(std::span(buffer_).subspan(size_, n)); !read) return read;
        size_ += n;
    }
    return {};
}

Result<ChunkHeader> ChunkReader::read_header() {
    ChunkHeader header;
    if (auto read = read_exactly(std::as_writable_bytes(std::span(&header, 1))); !read)
        return pass(std::move(read));
    if (auto read = read_exactly(std::as_writable_bytes(std::span(checksum_))); !read)
        return pass(std::move(read));
    return header;
}

Result<void> ChunkReader::check(const ChunkHeader& header) {
    const auto sum = checksum_of(header, std::span(buffer_).first(size_), seed_);
    if (sum == checksum_) {
        seed_ = sum[0];
        return {};
    }
    return damaged(
        fmt::format("the chunk that ends at byte {} does not have its checksum", offset_));
}

Result<StateHead> ChunkReader::read_head() {
    Preamble preamble;
    if (auto read = read_exactly(std::as_writable_bytes(std::span(&preamble, 1))); !read)
        return pass(std::move(read));
    if (preamble.magic != kMagic) return fail(Code::kBadFile, "it is no state of Cellar's");
    if (preamble.version != kStateVersion || preamble.reserved != 0)
        return fail(Code::kUnsupported,
                    fmt::format("the state has version {}.{}; this program reads version {}",
                                preamble.version, preamble.reserved, kStateVersion));
    auto header = read_header();
    if (!header) return pass(std::move(header));
    if (header->type != ChunkHeader::kHead || header->codec != ChunkHeader::kStored)
        return damaged("it does not begin with a head");
    if (auto read = read_payload(header->stored); !read) return pass(std::move(read));
    if (auto fine = check(*header); !fine) return pass(std::move(fine));
    return decode_head(std::span(buffer_).first(size_));
}

Result<ChunkHeader> ChunkReader::read_piece_header(const StatePiece& piece, size_t size) {
    const uint64_t begin = offset_;
    auto header = read_header();
    if (!header) return header;
    const bool expected = header->type == ChunkHeader::kRows && header->layer == piece.layer &&
                          header->side == static_cast<uint32_t>(piece.side) &&
                          header->first == piece.first && header->count == piece.count;
    const bool fits = header->codec == ChunkHeader::kZstd
                          ? header->stored < size && size <= kMostPacked
                          : header->stored == size;
    if (!expected || !fits || header->codec > ChunkHeader::kZstd)
        return damaged(
            fmt::format("the chunk at byte {} is not the one that belongs there", begin));
    index_.push_back({begin, header->stored, piece.layer, header->side, piece.first, piece.count});
    return header;
}

Result<std::span<const std::byte>> ChunkReader::read_piece(const StatePiece& piece, size_t size) {
    auto header = read_piece_header(piece, size);
    if (!header) return pass(std::move(header));
    if (auto read = read_payload(header->stored); !read) return pass(std::move(read));
    if (auto fine = check(*header); !fine) return pass(std::move(fine));
    if (header->codec == ChunkHeader::kZstd) return unpack(size);
    return std::span<const std::byte>(buffer_).first(size);
}

Result<std::span<const std::byte>> ChunkReader::unpack(size_t size) {
    if (!context_) context_.reset(ZSTD_createDCtx());
    if (!context_) return fail(Code::kIo, "no memory to decompress with");
    if (unpacked_.size() < size) unpacked_.resize(size);
    const size_t n =
        ZSTD_decompressDCtx(context_.get(), unpacked_.data(), size, buffer_.data(), size_);
    if (ZSTD_isError(n) || n != size)
        return damaged(fmt::format("the chunk that ends at byte {} does not decompress", offset_));
    return std::span<const std::byte>(unpacked_).first(size);
}

Result<void> ChunkReader::skip_piece(const StatePiece& piece, size_t size) {
    auto header = read_piece_header(piece, size);
    if (!header) return pass(std::move(header));
    seed_ = checksum_[0];
    offset_ += header->stored;
    return source_.skip(header->stored);
}

Result<void> ChunkReader::finish() {
    const uint64_t begin = offset_;
    auto header = read_header();
    if (!header) return pass(std::move(header));
    const auto entries = std::as_bytes(std::span(index_));
    if (header->type != ChunkHeader::kIndex || header->codec != ChunkHeader::kStored ||
        header->count != index_.size() || header->stored != entries.size())
        return damaged(fmt::format("byte {} is not where its index begins", begin));
    if (auto read = read_payload(header->stored); !read) return read;
    if (auto fine = check(*header); !fine) return fine;
    if (!std::equal(entries.begin(), entries.end(), buffer_.begin()))
        return damaged("its index is not that of its chunks");
    Trailer trailer;
    if (auto read = read_exactly(std::as_writable_bytes(std::span(&trailer, 1))); !read)
        return read;
    if (!(trailer == Trailer{begin, offset_})) return damaged("its trailer is not its own");
    return {};
}

}  // namespace cellar
