#include "cells/loading.h"

#include <algorithm>
#include <cassert>

#include "cells/cells.h"

namespace cellar {
Result<Loading> Loading::begin(Cells& cells, LoadRequest request) {
    if (cells.busy()) return fail(Code::kBusy, "a plan or a load is open");
    if (auto ok = cells.check_moves_done(); !ok) return pass(std::move(ok));
    Loading loading(cells, std::move(request));
    loading.pages_.resize(cells.n_groups());
    if (auto ok = loading.check_request(); !ok) return pass(std::move(ok));
    loading.find_ends();
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        for (size_t s = 0; s < loading.request_.seqs.size(); s++)
            if (auto ok = loading.check_end(g, s); !ok) return pass(std::move(ok));
    if (auto ok = loading.check_checkpoints(); !ok) return pass(std::move(ok));
    if (auto ok = loading.make_room(); !ok) return pass(std::move(ok));
    cells.open_plan_ = ++cells.last_serial_;
    for (uint32_t g = 0; g < cells.n_groups(); g++)
        loading.take_pages(g);
    return loading;
}

// Where the cells begin that a sequence is the first to see: such cells get pages of their own, so
// that they are freed together. The first is 0, the last is n_cells.
std::vector<uint32_t> Loading::segments(uint32_t g) const {
    std::vector<uint32_t> begins = {0};
    for (const LoadTrack& track : request_.groups[g]->tracks) {
        uint32_t end = begins.back();
        for (const LoadRun& run : track.runs)
            end = std::max(end, run.first + run.count);
        if (end > begins.back()) begins.push_back(end);
    }
    if (begins.back() < n_cells(g)) begins.push_back(n_cells(g));
    return begins;
}

// The sequences may draw on what was set aside for them.
Result<void> Loading::make_room() {
    std::vector<uint64_t> needed(cells_->n_groups(), 0), others(cells_->n_groups(), 0);
    for (uint32_t g = 0; g < cells_->n_groups(); g++) {
        if (!request_.groups[g]) continue;
        const std::vector<uint32_t> begins = segments(g);
        for (size_t i = 1; i < begins.size(); i++)
            needed[g] += cells_->pages(g, begins[i] - begins[i - 1]);
        others[g] = cells_->reserves_.total(g);
        for (const SeqId id : request_.seqs)
            others[g] -= cells_->reserves_.banked(id, g);
        const PagePool& pool = cells_->pools_[g];
        const uint64_t free = uint64_t{pool.n_free()} + pool.n_growable();
        if (needed[g] + others[g] > free)
            return cells_->no_room(g, needed[g], free - std::min(free, others[g]));
    }
    for (uint32_t g = 0; g < cells_->n_groups(); g++)
        cells_->grow_until_free(g, others[g] + needed[g]);
    return {};
}

void Loading::take_pages(uint32_t g) {
    if (!request_.groups[g]) return;
    PagePool& pool = cells_->pools_[g];
    const uint32_t n_pos = cells_->n_pos();
    const std::vector<uint32_t> begins = segments(g);
    for (size_t s = 1; s < begins.size(); s++) {
        for (uint32_t first = begins[s - 1]; first < begins[s];) {
            const auto page = pool.take();
            assert(page && "make_room has seen to it");
            const uint32_t n = std::min(begins[s] - first, pool.page_size());
            for (uint32_t i = 0; i < n; i++)
                pool.set_pos(*page, i,
                             std::span<const Pos>(request_.groups[g]->positions)
                                 .subspan(size_t{first + i} * n_pos, n_pos));
            pages_[g].push_back({*page, first, n});
            first += n;
        }
    }
}

uint32_t Loading::n_cells(uint32_t g) const {
    const auto& group = request_.groups[g];
    return group ? static_cast<uint32_t>(group->positions.size() / cells_->n_pos()) : 0;
}

std::vector<Loading::Rows> Loading::rows(uint32_t g, uint32_t first, uint32_t count) const {
    assert(uint64_t{first} + count <= n_cells(g));
    std::vector<Rows> rows;
    const uint32_t end = first + count, page_size = cells_->pool(g).page_size();
    auto page = std::upper_bound(pages_[g].begin(), pages_[g].end(), first,
                                 [](uint32_t x, const StagedPage& p) { return x < p.first; });
    for (page = page == pages_[g].begin() ? page : page - 1; first < end; page++) {
        const uint32_t n = std::min(end, page->first + page->count) - first;
        const uint32_t row = value(page->page) * page_size + (first - page->first);
        if (!rows.empty() && rows.back().row + rows.back().count == row) {
            rows.back().count += n;
        } else {
            rows.push_back({first, row, n});
        }
        first += n;
    }
    return rows;
}

// A span for each page that a run reaches into.
std::vector<Span> Loading::spans_of(uint32_t g, const std::vector<LoadRun>& runs) const {
    std::vector<Span> spans;
    const uint32_t page_size = cells_->pool(g).page_size();
    for (const LoadRun& run : runs) {
        for (const Rows& r : rows(g, run.first, run.count)) {
            for (uint32_t row = r.row; row < r.row + r.count;) {
                const uint32_t offset = row % page_size;
                const uint32_t n = std::min(r.row + r.count - row, page_size - offset);
                spans.push_back({PageId{row / page_size}, static_cast<uint16_t>(offset),
                                 static_cast<uint16_t>(n), run.delta});
                row += n;
            }
        }
    }
    return spans;
}

void Loading::commit() {
    assert(open());
    for (size_t s = 0; s < request_.seqs.size(); s++) {
        const SeqId id = request_.seqs[s];
        Sequence& sequence = cells_->find_or_add(id);
        for (uint32_t g = 0; g < cells_->n_groups(); g++) {
            PagePool& pool = cells_->pools_[g];
            if (!request_.groups[g]) {
                sequence.tracks[g].remove(pool, {ends_[s], kMaxPos});
                continue;
            }
            const LoadTrack& track = request_.groups[g]->tracks[s];
            Ranges forgotten;
            for (const Range r : track.forgotten)
                forgotten.add(r);
            sequence.tracks[g].replace(pool, spans_of(g, track.runs), std::move(forgotten),
                                       track.begin);
        }
        take_checkpoints(s);
        if (request_.trim) cells_->expire(id, nullptr);
        cells_->drop_if_empty(id);
    }
    close();
}

// The loaded ones in the place of its own. They need the windows and states of every group. Those
// that this memory would not keep are never added: with each that goes, what none of the others
// needs goes too, and later ones are no others yet.
void Loading::take_checkpoints(size_t s) {
    Sequence& sequence = *cells_->find(request_.seqs[s]);
    cells_->drop_checkpoints(sequence, {0, kMaxPos});
    if (request_.checkpoints.empty()) return;
    for (uint32_t g = 0; g < cells_->n_groups(); g++)
        if (!request_.groups[g] && cells_->lets_go(g)) return;
    const std::vector<Pos>& saved = request_.checkpoints[s];
    const size_t most = std::min(cells_->max_checkpoints_, cells_->max_checkpoints_all_);
    for (size_t i = saved.size() - std::min(saved.size(), most); i < saved.size(); i++)
        cells_->add_checkpoint(request_.seqs[s], saved[i], nullptr);
}

void Loading::abandon() {
    if (open()) close();
}

// Lets go of the pages: those that sequences see now stay theirs, all others are free.
void Loading::close() {
    for (uint32_t g = 0; g < cells_->n_groups(); g++)
        for (size_t i = pages_[g].size(); i-- > 0;)
            cells_->pools_[g].release(pages_[g][i].page, 0);
    cells_->open_plan_ = 0;
    std::exchange(cells_, nullptr)->settle();
}

}  // namespace cellar
