// What a load must be before anything is taken for it.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "cells/cells.h"
#include "cells/loading.h"

namespace cellar {
namespace {

// The last cell of the load that a sequence sees in a run, and its position there.
int64_t last_pos(const LoadGroup& group, const LoadRun& run, uint32_t n_pos) {
    return int64_t{group.positions[size_t{run.first + run.count - 1} * n_pos]} + run.delta;
}

int64_t first_pos(const LoadGroup& group, const LoadRun& run, uint32_t n_pos) {
    return int64_t{group.positions[size_t{run.first} * n_pos]} + run.delta;
}

// The position behind the last that a sequence sees; 0 where it sees nothing.
Pos end_of(const LoadGroup& group, size_t seq, uint32_t n_pos) {
    Pos end = 0;
    for (const LoadRun& run : group.tracks[seq].runs)
        end = std::max(end, static_cast<Pos>(last_pos(group, run, n_pos) + 1));
    return end;
}

// [n_cells + 1] how often positions fall from one cell to the next before each.
std::vector<uint32_t> count_falls(const LoadGroup& group, uint32_t n_pos) {
    const size_t n = group.positions.size() / n_pos;
    std::vector<uint32_t> falls(n + 1, 0);
    for (size_t i = 1; i < n; i++) {
        const bool fell = group.positions[i * n_pos] < group.positions[(i - 1) * n_pos];
        falls[i] = falls[i - 1] + (fell ? 1 : 0);
    }
    return falls;
}

// Whether a run lies inside the load, its positions do not fall, and all of them are positions.
bool is_sound(const LoadGroup& group, const LoadRun& run, uint32_t n_pos,
              const std::vector<uint32_t>& falls) {
    const uint64_t n_cells = group.positions.size() / n_pos, end = uint64_t{run.first} + run.count;
    if (run.count == 0 || end > n_cells || falls[end - 1] != falls[run.first]) return false;
    return first_pos(group, run, n_pos) >= 0 && last_pos(group, run, n_pos) < kMaxPos;
}

// Every component is a position, also where it was moved.
Result<void> check_components(const LoadGroup& group, uint32_t n_pos) {
    Pos greatest = 0;
    for (const Pos p : group.positions) {
        if (p < 0 || p == kMaxPos)
            return fail(Code::kBadRange, fmt::format("{} is no position", p));
        greatest = std::max(greatest, p);
    }
    for (const LoadTrack& track : group.tracks)
        for (const LoadRun& run : track.runs)
            if (n_pos > 1 && int64_t{greatest} + run.delta >= kMaxPos)
                return fail(Code::kBadRange,
                            fmt::format("position {} cannot be moved by {}", greatest, run.delta));
    return {};
}

}  // namespace

Result<void> Loading::check_request() const {
    if (request_.groups.size() != cells_->n_groups())
        return fail(Code::kInvalidArgument,
                    fmt::format("a load of {} groups into a memory of {}", request_.groups.size(),
                                cells_->n_groups()));
    std::unordered_set<int32_t> named;
    for (const SeqId id : request_.seqs) {
        if (value(id) < 0 || !named.insert(value(id)).second)
            return fail(Code::kInvalidArgument,
                        fmt::format("a load cannot name sequence {}{}", value(id),
                                    value(id) < 0 ? "" : " twice"));
    }
    for (uint32_t g = 0; g < cells_->n_groups(); g++)
        if (auto ok = check_group(g); !ok) return ok;
    return {};
}

Result<void> Loading::check_group(uint32_t g) const {
    if (!request_.groups[g]) return {};
    const LoadGroup& group = *request_.groups[g];
    const uint32_t n_pos = cells_->n_pos();
    if (group.positions.size() % n_pos != 0 || group.positions.size() / n_pos > INT32_MAX ||
        group.tracks.size() != request_.seqs.size())
        return fail(
            Code::kInvalidArgument,
            fmt::format("{} positions of {} components and tracks of {} sequences, not {}",
                        group.positions.size(), n_pos, group.tracks.size(), request_.seqs.size()));
    if (auto ok = check_components(group, n_pos); !ok) return ok;
    const std::vector<uint32_t> falls = count_falls(group, n_pos);
    for (size_t s = 0; s < group.tracks.size(); s++)
        if (auto ok = check_track(g, s, falls); !ok) return ok;
    return {};
}

Result<void> Loading::check_track(uint32_t g, size_t s, const std::vector<uint32_t>& falls) const {
    const LoadGroup& group = *request_.groups[g];
    const LoadTrack& track = group.tracks[s];
    const int32_t id = value(request_.seqs[s]);
    uint64_t seen = 0;
    for (const LoadRun& run : track.runs) {
        if (!is_sound(group, run, cells_->n_pos(), falls))
            return fail(Code::kBadRange,
                        fmt::format("sequence {} cannot see {} cells from {} on of {}, moved by {}",
                                    id, run.count, run.first, n_cells(g), run.delta));
        seen += run.count;
    }
    Pos end = 0;
    for (const Range r : track.forgotten) {
        if (r.begin < end || r.empty())
            return fail(Code::kBadRange, fmt::format("sequence {} has forgotten [{}, {}) after {}",
                                                     id, r.begin, r.end, end));
        end = r.end;
    }
    if (end > 0 && !(cells_->kind(g).slides() && cells_->lets_go(g)))
        return fail(Code::kUnsupported,
                    fmt::format("sequence {} has forgotten positions up to {}, and group {} of "
                                "this memory keeps all",
                                id, end, g));
    if (track.begin < 0)
        return fail(Code::kBadRange, fmt::format("sequence {} begins at {}", id, track.begin));
    return check_maximum(g, s, seen);
}

Result<void> Loading::check_maximum(uint32_t g, size_t s, uint64_t seen) const {
    const Reserves::Account* account = cells_->reserves_.find(request_.seqs[s]);
    const bool limited = account != nullptr && !cells_->lets_go(g);
    const uint64_t most = limited ? account->limits.maximum : INT32_MAX;
    if (seen <= most) return {};
    return tl::unexpected<Error>(
        Error{Code::kNoRoom,
              fmt::format("no room: sequence {} would hold {} cells, and may hold {}",
                          value(request_.seqs[s]), seen, most),
              Room{seen, most, 0}});
}

Result<void> Loading::check_checkpoints() const {
    if (request_.checkpoints.empty()) return {};
    bool sound = request_.checkpoints.size() == request_.seqs.size();
    for (size_t s = 0; sound && s < request_.seqs.size(); s++) {
        Pos before = -1;
        for (const Pos p : request_.checkpoints[s]) {
            sound = sound && before < p && p < ends_[s];
            before = p;
        }
    }
    if (sound) return {};
    return fail(Code::kBadRange, "checkpoints that do not ascend, or lie behind their sequences");
}

void Loading::find_ends() {
    ends_.assign(request_.seqs.size(), 0);
    for (const auto& group : request_.groups)
        for (size_t s = 0; group && s < ends_.size(); s++)
            ends_[s] = std::max(ends_[s], end_of(*group, s, cells_->n_pos()));
}

Result<void> Loading::check_end(uint32_t g, size_t s) const {
    const SeqId id = request_.seqs[s];
    const Sequence* held = std::as_const(*cells_).find(id);
    const PagePool& pool = cells_->pools_[g];
    const bool loaded = request_.groups[g].has_value();
    Pos end = 0;
    if (loaded) {
        end = end_of(*request_.groups[g], s, cells_->n_pos());
    } else if (held != nullptr) {
        end = held->tracks[g].pos_max_before(pool, ends_[s]) + 1;
    }
    if (end != ends_[s])
        return fail(Code::kBadRange,
                    fmt::format("sequence {} would end at position {} in group {}, which is {}, "
                                "and at {} in others",
                                value(id), end, g, loaded ? "loaded" : "not loaded", ends_[s]));
    if (loaded || held == nullptr || held->tracks[g].pos_max(pool) < end) return {};
    return cells_->check_end(id, g, end);
}

}  // namespace cellar
