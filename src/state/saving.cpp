#include "state/saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "state/chunks.h"

namespace cellar {

// Numbers the cells of one group in the order in which sequences are the first to see them.
class Saving::Gatherer {
public:
    Gatherer(const Memory& memory, uint32_t group, StateHead::Group& out, std::vector<Rows>& rows)
        : cells_(memory.cells()),
          pool_(memory.cells().pool(group)),
          group_(group),
          out_(out),
          rows_(rows),
          numbers_(size_t{pool_.n_pages()} * pool_.page_size(), kNone) {}

    LoadTrack gather(SeqId seq) {
        LoadTrack track;
        for (const Span& span : cells_.spans(seq, group_))
            for (uint32_t i = 0; i < span.count; i++)
                see(track.runs, span, i);
        const auto forgotten = cells_.forgotten(seq, group_);
        track.forgotten.assign(forgotten.begin(), forgotten.end());
        track.begin = cells_.taken_up_from(seq, group_);
        return track;
    }

private:
    static constexpr uint32_t kNone = UINT32_MAX;

    void see(std::vector<LoadRun>& runs, const Span& span, uint32_t i) {
        const uint32_t number = number_of(span, i);
        const Pos pos = cells_.pos(group_, span, i);
        if (!runs.empty() && runs.back().first + runs.back().count == number &&
            runs.back().delta == span.delta && last_pos_ <= pos) {
            runs.back().count++;
        } else {
            runs.push_back({number, 1, span.delta});
        }
        last_pos_ = pos;
    }

    uint32_t number_of(const Span& span, uint32_t i) {
        const uint32_t row = value(span.page) * pool_.page_size() + span.first + i;
        if (numbers_[row] != kNone) return numbers_[row];
        for (uint32_t c = 0; c < pool_.n_pos(); c++)
            out_.positions.push_back(pool_.component(span.page, span.first + i, c));
        if (!rows_.empty() && rows_.back().row + rows_.back().count == row) {
            rows_.back().count++;
        } else {
            rows_.push_back({n_cells_, row, 1});
        }
        return numbers_[row] = n_cells_++;
    }

    const Cells& cells_;
    const PagePool& pool_;
    const uint32_t group_;
    StateHead::Group& out_;
    std::vector<Rows>& rows_;
    std::vector<uint32_t> numbers_;  // by row of the pool
    uint32_t n_cells_ = 0;
    Pos last_pos_ = 0;  // of the cell that was seen last
};

Result<Saving> Saving::begin(const Memory& memory, const Identity& identity,
                             std::span<const SequenceToSave> seqs, SaveOptions options) {
    const Cells& cells = memory.cells();
    if (cells.busy()) return fail(Code::kBusy, "a plan or a load is open");
    if (auto done = cells.check_moves_done(); !done) return pass(std::move(done));
    Saving saving(memory, std::move(options));
    StateHead& head = saving.head_;
    head = describe_memory(memory);
    head.identity = identity;

    std::unordered_set<int32_t> named;
    for (const SequenceToSave& s : seqs) {
        if (value(s.seq) < 0 || !named.insert(value(s.seq)).second)
            return fail(Code::kInvalidArgument,
                        fmt::format("sequence {} cannot be saved{}", value(s.seq),
                                    value(s.seq) < 0 ? "" : " twice"));
        head.seqs.push_back({s.seq, {s.tokens.begin(), s.tokens.end()}, {}, {}});
    }
    for (const SeqId id : cells.sequences())
        if (seqs.empty()) head.seqs.push_back({id, {}, {}, {}});
    for (StateHead::Sequence& s : head.seqs) {
        for (const Checkpoint& checkpoint : cells.checkpoints(s.seq))
            s.checkpoints.push_back(checkpoint.pos);
        s.tracks.resize(cells.n_groups());
    }

    for (const uint32_t g : saving.options_.groups) {
        if (g >= cells.n_groups())
            return fail(Code::kBadRange,
                        fmt::format("group {} of {} cannot be saved", g, cells.n_groups()));
        head.groups[g].saved = true;
    }
    saving.rows_.resize(cells.n_groups());
    for (uint32_t g = 0; g < cells.n_groups(); g++) {
        if (saving.options_.groups.empty()) head.groups[g].saved = true;
        if (!head.groups[g].saved) continue;
        Gatherer gatherer(memory, g, head.groups[g], saving.rows_[g]);
        for (StateHead::Sequence& s : head.seqs)
            s.tracks[g] = gatherer.gather(s.seq);
    }
    return saving;
}

uint64_t Saving::size() const {
    uint64_t n_pieces = 0, bytes = 0;
    (void)for_each_piece(head_, [&](const StatePiece& piece) -> Result<void> {
        n_pieces++;
        bytes += piece.count * head_.row_bytes(piece.layer, piece.side);
        return {};
    });
    return bytes + ChunkWriter::frame_bytes(encode_head(head_).size(), n_pieces);
}

std::vector<PoolRows> Saving::rows_of(const StatePiece& piece) const {
    const std::vector<Rows>& rows = rows_[head_.layers[piece.layer].group];
    auto at = std::upper_bound(rows.begin(), rows.end(), piece.first,
                               [](uint32_t x, const Rows& r) { return x < r.first; }) -
              1;
    std::vector<PoolRows> runs;
    for (uint32_t first = piece.first; first < piece.first + piece.count; at++) {
        const uint32_t skipped = first - at->first;
        const uint32_t n = std::min(at->count - skipped, piece.first + piece.count - first);
        runs.push_back({at->row + skipped, n});
        first += n;
    }
    return runs;
}

Result<void> Saving::write(Sink& sink) const {
    const double total = static_cast<double>(size());
    double done = 0;
    ChunkWriter writer(sink, options_.compress);
    if (auto written = writer.write_head(head_); !written) return written;
    auto written = for_each_piece(head_, [&](const StatePiece& piece) -> Result<void> {
        const size_t size = piece.count * head_.row_bytes(piece.layer, piece.side);
        read_rows(*memory_, piece.layer, piece.side, rows_of(piece), writer.payload(size));
        done += static_cast<double>(size);
        if (options_.progress && !options_.progress(done / total))
            return fail(Code::kCancelled, "saving was cancelled");
        return writer.write_piece(piece);
    });
    if (!written) return written;
    if (auto finished = writer.finish(); !finished) return finished;
    return sink.finish();
}

}  // namespace cellar
