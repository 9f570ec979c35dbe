#include "state/inspection.h"

#include <fmt/format.h>

#include <utility>

#include "state/chunks.h"

namespace cellar {

Result<StateInspection> inspect_state(Source& source) {
    ChunkReader reader(source);
    auto head = reader.read_head();
    if (!head) return pass(std::move(head));
    StateInspection found{*std::move(head), 0, 0, {}};
    found.verified = for_each_piece(found.head, [&](const StatePiece& piece) -> Result<void> {
        const uint64_t size = piece.count * found.head.row_bytes(piece.layer, piece.side);
        found.bytes_cells += size;
        auto read = reader.read_piece(piece, size);
        return read ? Result<void>() : tl::unexpected(read.error());
    });
    if (found.verified) found.verified = reader.finish();
    found.bytes = reader.offset();
    const auto left = source.remaining();
    if (found.verified && left && *left > 0)
        found.verified =
            fail(Code::kBadFile, fmt::format("{} bytes follow the state's end", *left));
    return found;
}

}  // namespace cellar
