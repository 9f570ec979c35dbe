#include "state/selection.h"

#include <fmt/format.h>

#include <algorithm>

namespace cellar {
namespace {

Result<void> add(const StateHead& head, SeqId saved, SeqId target, StateSelection& out) {
    const auto at = std::find_if(head.seqs.begin(), head.seqs.end(),
                                 [&](const StateHead::Sequence& s) { return s.seq == saved; });
    if (at == head.seqs.end())
        return fail(Code::kBadRange,
                    fmt::format("the state does not have sequence {}", value(saved)));
    out.seqs.push_back(&*at);
    out.targets.push_back(target);
    return {};
}

Result<void> choose_sequences(const StateHead& head, const LoadStateOptions& options,
                              StateSelection& out) {
    if (options.into) {
        if (head.seqs.size() != 1)
            return fail(Code::kBadRange,
                        fmt::format("the state has {} sequences, not one: say which to load",
                                    head.seqs.size()));
        return add(head, head.seqs[0].seq, *options.into, out);
    }
    for (const auto& [saved, target] : options.seqs)
        if (auto added = add(head, saved, target, out); !added) return added;
    if (!options.seqs.empty()) return {};
    for (const StateHead::Sequence& s : head.seqs) {
        out.seqs.push_back(&s);
        out.targets.push_back(s.seq);
    }
    return {};
}

bool is_chosen(const StateHead& head, const LoadStateOptions& options, uint32_t group) {
    return head.groups[group].saved &&
           (options.groups.empty() ||
            std::find(options.groups.begin(), options.groups.end(), group) != options.groups.end());
}

Result<void> check_runs(const StateHead& head, uint32_t group, const StateHead::Sequence& s) {
    for (const LoadRun& run : s.tracks[group].runs)
        if (uint64_t{run.first} + run.count > head.n_cells(group))
            return fail(Code::kBadFile,
                        fmt::format("the state is damaged: sequence {} sees {} cells from {} on, "
                                    "of {}",
                                    value(s.seq), run.count, run.first, head.n_cells(group)));
    return {};
}

}  // namespace

CellSelection::CellSelection(const std::vector<const LoadTrack*>& tracks) {
    for (const LoadTrack* track : tracks)
        for (const LoadRun& run : track->runs)
            pieces_.push_back({run.first, run.first + run.count, 0});
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    size_t n = 0;
    for (const Piece& piece : pieces_) {
        if (n > 0 && piece.begin <= pieces_[n - 1].end) {
            pieces_[n - 1].end = std::max(pieces_[n - 1].end, piece.end);
        } else {
            pieces_[n++] = piece;
        }
    }
    pieces_.resize(n);
    for (Piece& piece : pieces_) {
        piece.first = n_cells_;
        n_cells_ += piece.end - piece.begin;
    }
}

uint32_t CellSelection::number_of(uint32_t saved) const {
    const auto at = std::upper_bound(pieces_.begin(), pieces_.end(), saved,
                                     [](uint32_t x, const Piece& p) { return x < p.begin; });
    return at == pieces_.begin() ? 0 : (at - 1)->first + saved - (at - 1)->begin;
}

std::vector<CellSelection::Piece> CellSelection::within(uint32_t first, uint32_t count) const {
    std::vector<Piece> found;
    auto at = std::upper_bound(pieces_.begin(), pieces_.end(), first,
                               [](uint32_t x, const Piece& p) { return x < p.end; });
    for (; at != pieces_.end() && at->begin < first + count; at++) {
        const uint32_t begin = std::max(at->begin, first), end = std::min(at->end, first + count);
        if (begin < end) found.push_back({begin, end, at->first + begin - at->begin});
    }
    return found;
}

Result<StateSelection> select(const StateHead& head, const LoadStateOptions& options) {
    StateSelection selection;
    if (auto chosen = choose_sequences(head, options, selection); !chosen)
        return pass(std::move(chosen));
    for (const uint32_t g : options.groups)
        if (g >= head.groups.size() || !head.groups[g].saved)
            return fail(Code::kBadRange, fmt::format("the state does not have group {}", g));
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        auto& group = selection.groups.emplace_back();
        if (!is_chosen(head, options, g)) continue;
        std::vector<const LoadTrack*> tracks;
        for (const StateHead::Sequence* s : selection.seqs) {
            if (auto fine = check_runs(head, g, *s); !fine) return pass(std::move(fine));
            tracks.push_back(&s->tracks[g]);
        }
        group.emplace(tracks);
    }
    return selection;
}

LoadRequest make_request(const StateHead& head, const StateSelection& selection) {
    LoadRequest request;
    request.seqs = selection.targets;
    for (const StateHead::Sequence* s : selection.seqs)
        request.checkpoints.push_back(s->checkpoints);
    request.groups.resize(head.groups.size());
    for (uint32_t g = 0; g < head.groups.size(); g++) {
        if (!selection.groups[g]) continue;
        const CellSelection& cells = *selection.groups[g];
        LoadGroup& group = request.groups[g].emplace();
        group.positions.reserve(size_t{cells.n_cells()} * head.n_pos);
        for (const CellSelection::Piece& piece : cells.pieces()) {
            const auto begin = head.groups[g].positions.begin();
            group.positions.insert(group.positions.end(),
                                   begin + static_cast<ptrdiff_t>(size_t{piece.begin} * head.n_pos),
                                   begin + static_cast<ptrdiff_t>(size_t{piece.end} * head.n_pos));
        }
        group.tracks.reserve(selection.seqs.size());
        for (const StateHead::Sequence* s : selection.seqs) {
            LoadTrack& track = group.tracks.emplace_back(s->tracks[g]);
            for (LoadRun& run : track.runs)
                run.first = cells.number_of(run.first);
        }
    }
    return request;
}

}  // namespace cellar
