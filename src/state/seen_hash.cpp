#include "state/seen_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <vector>

#include "memory/rows.h"

namespace cellar {
namespace {

// Sums hashes of single rows, so that their order does not matter.
class RowSum {
public:
    RowSum(const Memory& memory, SeqId seq) : memory_(memory), seq_(seq) {}

    void add(uint32_t layer, Side side) {
        const Cells& cells = memory_.cells();
        const uint32_t group = memory_.config().layers[layer].group;
        const size_t row = row_bytes(memory_, layer, side);
        for (const Span& span : cells.spans(seq_, group)) {
            const uint32_t page_size = cells.pool(group).page_size();
            const PoolRows run{value(span.page) * page_size + span.first, span.count};
            bytes_.resize(span.count * row);
            read_rows(memory_, layer, side, std::span(&run, 1), bytes_);
            for (uint32_t i = 0; i < span.count; i++)
                add_row(layer, side, span, i, bytes_.data() + i * row, row);
        }
    }

    std::string text() const { return fmt::format("{:016x}{:016x}", high_, low_); }

private:
    void add_row(uint32_t layer, Side side, const Span& span, uint32_t i, const void* row,
                 size_t size) {
        const Cells& cells = memory_.cells();
        const PagePool& pool = cells.pool(memory_.config().layers[layer].group);
        uint32_t place[6] = {layer, static_cast<uint32_t>(side)};
        for (uint32_t c = 0; c < cells.n_pos(); c++)
            place[2 + c] = static_cast<uint32_t>(pool.component(span.page, span.first + i, c)) +
                           static_cast<uint32_t>(span.delta);
        const XXH128_hash_t hash =
            XXH3_128bits_withSeed(row, size, XXH3_64bits(place, sizeof place));
        low_ += hash.low64;
        high_ += hash.high64;
    }

    const Memory& memory_;
    const SeqId seq_;
    std::vector<std::byte> bytes_;
    uint64_t low_ = 0;
    uint64_t high_ = 0;
};

}  // namespace

std::string hash_seen(const Memory& memory, SeqId seq) {
    RowSum sum(memory, seq);
    for (uint32_t layer = 0; layer < memory.config().layers.size(); layer++) {
        if (!memory.keeps(layer)) continue;
        sum.add(layer, Side::kKeys);
        sum.add(layer, Side::kValues);
    }
    return sum.text();
}

}  // namespace cellar
