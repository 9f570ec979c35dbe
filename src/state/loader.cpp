#include "state/loader.h"

#include <fmt/format.h>

#include "state/chunks.h"
#include "state/selection.h"

namespace cellar {
namespace {

tl::unexpected<Error> other(std::string what) {
    return fail(Code::kUnsupported, "the state is of another shape: " + std::move(what));
}

Result<void> check_shape(const StateHead& saved, const StateHead& here) {
    if (saved.n_pos != here.n_pos)
        return other(fmt::format("positions of {} components, not {}", saved.n_pos, here.n_pos));
    if (saved.groups.size() != here.groups.size())
        return other(
            fmt::format("{} groups of layers, not {}", saved.groups.size(), here.groups.size()));
    for (size_t g = 0; g < here.groups.size(); g++)
        if (saved.groups[g].kind != here.groups[g].kind)
            return other(fmt::format(
                "group {} is of kind {} with a window of {}, not of kind {} with one of {}", g,
                static_cast<int>(saved.groups[g].kind.type), saved.groups[g].kind.window,
                static_cast<int>(here.groups[g].kind.type), here.groups[g].kind.window));
    if (saved.layers.size() != here.layers.size())
        return other(fmt::format("{} layers, not {}", saved.layers.size(), here.layers.size()));
    for (size_t i = 0; i < here.layers.size(); i++)
        if (!(saved.layers[i] == here.layers[i]))
            return other(fmt::format(
                "layer {} of group {} has keys of {} numbers and values of {}, not of "
                "group {} with {} and {}",
                i, saved.layers[i].group, saved.layers[i].values[0], saved.layers[i].values[1],
                here.layers[i].group, here.layers[i].values[0], here.layers[i].values[1]));
    return {};
}

Result<void> check_types(const StateHead& saved, const StateHead& here, bool convert) {
    for (size_t g = 0; g < here.groups.size(); g++) {
        for (const Side side : {Side::kKeys, Side::kValues}) {
            const KvType old = saved.groups[g].type(side), now = here.groups[g].type(side);
            if (old == now || convert) continue;
            return fail(Code::kUnsupported,
                        fmt::format("the state has {} as {}, this memory as {}, and conversion was "
                                    "not asked for",
                                    side == Side::kKeys ? "keys" : "values", name(old), name(now)));
        }
    }
    return {};
}

// Spans are made for what sequences see, and a few bytes can say that many see much. No model's
// keys and values are so small beside them.
Result<void> check_spans(const StateHead& head, const LoadRequest& request, const Memory& memory) {
    uint64_t spans = 0, bytes = 0;
    for (uint32_t i = 0; i < head.layers.size(); i++)
        bytes += uint64_t{head.n_cells(head.layers[i].group)} *
                 (head.row_bytes(i, Side::kKeys) + head.row_bytes(i, Side::kValues));
    for (uint32_t g = 0; g < request.groups.size(); g++) {
        if (!request.groups[g]) continue;
        const uint32_t page_size = memory.cells().pool(g).page_size();
        for (const LoadTrack& track : request.groups[g]->tracks)
            for (const LoadRun& run : track.runs)
                spans += run.count / page_size + 2;
    }
    // A few spans for nothing: small states of small models.
    if (spans <= 1024 || spans * sizeof(Span) <= 2 * bytes) return {};
    return fail(Code::kBadFile,
                fmt::format("the state is damaged: {} pieces of pages for {} bytes of keys and "
                            "values",
                            spans, bytes));
}

class Loader {
public:
    Loader(Memory& memory, Source& source, const LoadStateOptions& options)
        : memory_(memory), reader_(source), options_(options) {}

    Result<std::vector<LoadedSequence>> run(const Identity& identity) {
        auto head = reader_.read_head();
        if (!head) return pass(std::move(head));
        head_ = *std::move(head);
        if (auto same = check_identity(head_.identity, identity); !same)
            return pass(std::move(same));
        here_ = describe_memory(memory_);
        if (auto same = check_shape(head_, here_); !same) return pass(std::move(same));
        if (auto same = check_types(head_, here_, options_.convert); !same)
            return pass(std::move(same));
        auto selection = select(head_, options_);
        if (!selection) return pass(std::move(selection));
        selection_ = *std::move(selection);
        LoadRequest request = make_request(head_, selection_);
        request.trim = options_.trim;
        if (auto fine = check_spans(head_, request, memory_); !fine) return pass(std::move(fine));
        auto loading = memory_.begin_load(std::move(request));
        if (!loading) return pass(std::move(loading));
        if (auto read = read_pieces(*loading); !read) return pass(std::move(read));
        memory_.finish_load(*loading);
        return loaded();
    }

private:
    // Into rows that nobody sees.
    Result<void> read_pieces(const Loading& loading) {
        double total = 0, done = 0;
        for (const StateHead::Layer& layer : head_.layers)
            total += layer.keeps() ? static_cast<double>(head_.n_cells(layer.group)) : 0;
        auto read = for_each_piece(head_, [&](const StatePiece& piece) -> Result<void> {
            done += piece.count * 0.5;
            if (options_.progress && !options_.progress(done / total))
                return fail(Code::kCancelled, "loading was cancelled");
            return read_piece(piece, loading);
        });
        return read ? reader_.finish() : read;
    }

    Result<void> read_piece(const StatePiece& piece, const Loading& loading) {
        const uint32_t group = head_.layers[piece.layer].group;
        const size_t row = head_.row_bytes(piece.layer, piece.side), size = piece.count * row;
        std::vector<CellSelection::Piece> wanted;
        if (selection_.groups[group])
            wanted = selection_.groups[group]->within(piece.first, piece.count);
        if (wanted.empty()) return reader_.skip_piece(piece, size);
        const auto bytes = reader_.read_piece(piece, size);
        if (!bytes) return tl::unexpected(bytes.error());
        for (const CellSelection::Piece& w : wanted)
            write(piece, loading, w.first,
                  bytes->subspan((w.begin - piece.first) * row, (w.end - w.begin) * row));
        return {};
    }

    void write(const StatePiece& piece, const Loading& loading, uint32_t first,
               std::span<const std::byte> bytes) {
        const uint32_t group = head_.layers[piece.layer].group;
        const KvType from = head_.groups[group].type(piece.side),
                     to = here_.groups[group].type(piece.side);
        if (from != to) {
            const size_t rows = bytes.size() / head_.row_bytes(piece.layer, piece.side);
            converted_.resize(rows * here_.row_bytes(piece.layer, piece.side));
            convert_rows(from, to,
                         head_.layers[piece.layer].values[static_cast<uint32_t>(piece.side)], bytes,
                         converted_);
            bytes = converted_;
        }
        write_rows(memory_, loading, piece.layer, piece.side, first, bytes);
    }

    std::vector<LoadedSequence> loaded() {
        std::vector<LoadedSequence> sequences;
        for (size_t s = 0; s < selection_.seqs.size(); s++)
            sequences.push_back(
                {selection_.seqs[s]->seq, selection_.targets[s], selection_.seqs[s]->tokens});
        return sequences;
    }

    Memory& memory_;
    ChunkReader reader_;
    const LoadStateOptions& options_;
    StateHead head_;  // of the state
    StateHead here_;  // of this memory
    StateSelection selection_;
    std::vector<std::byte> converted_;
};

}  // namespace

Result<std::vector<LoadedSequence>> load_state(Memory& memory, const Identity& identity,
                                               Source& source, const LoadStateOptions& options) {
    return Loader(memory, source, options).run(identity);
}

}  // namespace cellar
