#include "testing/cells_history.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "cells/audit.h"

namespace cellar::testing {
namespace {

constexpr int kPoison = -1;

// A state after one more token.
int take_up(int state, int token) {
    return static_cast<int>((static_cast<uint32_t>(state) * 31u + static_cast<uint32_t>(token)) &
                            0x7fffffffu);
}

Cells make(const HistoryConfig& config) {
    CellsConfig cells;
    cells.group_cells = config.group_cells;
    cells.page_size = config.page_size;
    cells.n_pos = config.n_pos;
    cells.max_deltas = 3;
    cells.grow_step = config.grow_step;
    cells.kinds = config.kinds;
    cells.n_rollback = config.n_rollback;
    cells.max_checkpoints = config.max_checkpoints;
    cells.max_checkpoints_all = config.max_checkpoints_all;
    cells.max_ubatch = 48;
    auto made = Cells::create(cells);
    if (!made) std::abort();
    return std::move(*made);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Step& s) {
    return out << fmt::format("{{{}, {}, {}, {}, {}, {}}}", s.verb, s.a, s.b, s.p0, s.p1, s.d);
}

CellsHistory::CellsHistory(const HistoryConfig& config) : config_(config), cells_(make(config)) {
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        const PagePool& pool = cells_.pool(g);
        contents_.emplace_back(pool.max_pages() * pool.page_size() + 1, kPoison);
        contents_.back().back() = 0;
    }
}

std::optional<std::string> CellsHistory::apply(const Step& step) {
    Finding finding;
    switch (step.verb % 12) {
        case 0:
        case 1:
        case 2:
        case 3:
            finding = append(step);
            break;
        case 4:
            finding = append_coupled(step);
            break;
        case 11:
            finding = care(step);
            break;
        default:
            finding = verb(step);
            break;
    }
    make_moves();
    if (finding) return finding;
    if (auto contradiction = audit(cells_, kept_)) return contradiction;
    poison();
    return compare();
}

std::optional<std::string> CellsHistory::finish() {
    if (!cells_.seq_rm(kEverySeq, -1, -1)) return "removing everything was refused";
    kept_.clear();
    for (uint32_t g = 0; g < cells_.n_groups(); g++)
        if (cells_.pool(g).n_free() != cells_.pool(g).n_pages())
            return fmt::format("{} of {} pages are free after removing everything",
                               cells_.pool(g).n_free(), cells_.pool(g).n_pages());
    return audit(cells_);
}

// Items of one or two sequences in turn; `p1` chooses the splitting, `d` an abort between ubatches.
CellsHistory::Finding CellsHistory::append(const Step& step) {
    const std::array<int, 2> seqs = {step.a % config_.n_seqs, step.b % config_.n_seqs};
    const bool both = step.p1 % 3 == 1 && seqs[0] != seqs[1];
    const int n = 1 + std::abs(step.p0 % 75);
    SplitOptions options;
    options.splitting = static_cast<Splitting>(std::abs(step.p1 / 4) % 3);
    options.max_ubatch = static_cast<uint32_t>(1 + std::abs(step.p1 % 41));
    options.whole_sequences = step.p1 % 11 == 5;
    Batch batch(config_.n_pos);
    for (int i = 0; i < n; i++) {
        const int seq = both ? seqs[static_cast<size_t>(i % 2)] : seqs[0];
        // A gap in front of the first items, now and then.
        const bool gap = step.d % 5 == 3 && i < (both ? 2 : 1);
        batch.add(next_token_++, SeqId{seq}, gap ? model_.pos_max(seq) + 1 + step.d % 7 : kNextPos);
        const bool keeps = config_.max_checkpoints > 0 && !options.whole_sequences;
        if (keeps && (step.p0 + i) % 23 == 4) batch.add_checkpoint();
    }
    const size_t abort_after =
        step.d % 4 == 2 ? static_cast<size_t>(std::abs(step.d) % 3) : SIZE_MAX;
    return run(batch, options, abort_after);
}

CellsHistory::Finding CellsHistory::append_coupled(const Step& step) {
    const int a = step.a % config_.n_seqs, b = step.b % config_.n_seqs;
    if (a == b) return {};
    const std::array<SeqId, 2> seqs = {SeqId{a}, SeqId{b}};
    Batch batch(config_.n_pos);
    const int shared = 1 + std::abs(step.p0 % 40), own = std::abs(step.p1 % 3);
    for (int i = 0; i < shared; i++)
        batch.add(next_token_++, seqs);
    for (int i = 0; i < own; i++)
        batch.add(next_token_++, seqs[static_cast<size_t>(i % 2)]);
    SplitOptions options;
    options.splitting = static_cast<Splitting>(std::abs(step.d) % 3);
    options.max_ubatch = static_cast<uint32_t>(1 + std::abs(step.d % 37));
    const bool legal = same_cells(a, b);
    const uint64_t refused = refused_;
    if (auto finding = run(batch, options, SIZE_MAX)) return finding;
    if (!legal && refused_ == refused)
        return fmt::format("sequences {} and {} differ and shared an item", a, b);
    return {};
}

CellsHistory::Finding CellsHistory::run(const Batch& batch, const SplitOptions& options,
                                        size_t abort_after) {
    auto plan = cells_.prepare(batch, options);
    if (!plan) {
        refused_++;
        const Error& error = plan.error();
        const bool truthful = error.code != Code::kNoRoom || error.room->needed > error.room->free;
        return truthful ? Finding() : Finding("refused: " + error.message);
    }
    for (size_t i = 0; i < plan->size() && i < abort_after; i++) {
        const UbatchPlan& ubatch = plan->ubatch(i);
        for (uint32_t g = 0; g < cells_.n_groups(); g++)
            compute(batch, ubatch, g);
        if (auto committed = cells_.commit(*plan, i); !committed) return committed.error().message;
        for (size_t k = 0; k < ubatch.items.size(); k++)
            for (const SeqId id : batch.seqs(ubatch.items[k]))
                model_.append(value(id), ubatch.positions[k * batch.n_pos()],
                              batch.token(ubatch.items[k]));
    }
    return abort_after >= plan->size() ? check_rollback(batch) : Finding();
}

// What a graph would do in one group.
void CellsHistory::compute(const Batch& batch, const UbatchPlan& ubatch, uint32_t group) {
    std::vector<int>& contents = contents_[group];
    const UbatchGroup& out = ubatch.groups[group];
    const uint32_t size = page_size(group);
    for (const CellCopy& c : out.copies)
        for (uint32_t k = 0; k < c.count; k++)
            contents[value(c.to) * size + c.to_first + k] =
                contents[value(c.from) * size + c.from_first + k];
    if (!cells_.kind(group).is_recurrent()) {
        for (size_t k = 0; k < ubatch.items.size(); k++)
            contents[out.cells[k]] = batch.token(ubatch.items[k]);
        return;
    }
    std::vector<int> read;  // all before any is written, as a graph does
    for (const uint32_t source : out.sources)
        read.push_back(contents[source]);
    for (size_t r = 0; r < ubatch.runs.size(); r++) {
        const UbatchRun& run = ubatch.runs[r];
        int state = read[r];
        for (uint32_t k = 0; k < run.count; k++) {
            state = take_up(state, batch.token(ubatch.items[run.first + k]));
            const uint32_t left = run.count - k;
            if (left <= out.n_states) contents[out.cells[(r + 1) * out.n_states - left]] = state;
        }
    }
}

// Straight after a batch its newest items can be taken back, as many as were promised.
CellsHistory::Finding CellsHistory::check_rollback(const Batch& batch) const {
    for (size_t i = 0; i < batch.size(); i++) {
        if (batch.pos(i) != kNextPos) return {};  // it counts in positions, not over gaps
        for (const SeqId id : batch.seqs(i)) {
            Pos n = 0;
            for (size_t k = 0; k < batch.size(); k++)
                for (const SeqId other : batch.seqs(k))
                    n += other == id ? 1 : 0;
            n = std::min<Pos>(n, static_cast<Pos>(config_.n_rollback));
            for (Pos back = 1; back <= n; back++) {
                const Pos p0 = cells_.seq_pos_max(id) + 1 - back;
                const auto allowed = cells_.can_rm(id, p0, -1);
                if (!allowed) return "a token cannot be taken back: " + allowed.error().message;
            }
        }
        if (batch.seqs(i).size() > 1 || batch.size() > 1) break;  // one is enough
    }
    return {};
}

bool CellsHistory::slides() const {
    return std::any_of(config_.kinds.begin(), config_.kinds.end(),
                       [](GroupKind kind) { return kind.slides(); });
}

// Where windows and states go, a verb may be refused for their sake, and nothing has changed then.
bool CellsHistory::may_refuse(const Result<void>& result) const {
    return !result && cells_.any_lets_go() &&
           (result.error().code == Code::kForgotten || result.error().code == Code::kUnsupported);
}

CellsHistory::Finding CellsHistory::verb(const Step& step) {
    const bool every = step.b % 16 == 7;
    const int a = every ? -1 : step.a % config_.n_seqs;
    const int b = step.b % config_.n_seqs;
    // Mostly small, sometimes open, sometimes near the greatest position.
    const Pos p0 = step.p0 % 7 == 3 ? -1 : std::abs(step.p0) % 300;
    const Pos p1 = step.p1 % 5 == 2 ? -1 : std::abs(step.p1) % 300;
    const Pos delta = step.d % 61 == 17 ? step.d * 65000 : step.d % 50;
    const Range range = make_range(p0, p1);
    const bool legal = range.begin <= range.end;
    Finding finding;
    switch (step.verb % 12) {
        case 5:
        case 6: {
            const bool allowed = cells_.can_rm(SeqId{a}, p0, p1).has_value();
            const auto result = cells_.seq_rm(SeqId{a}, p0, p1);
            if (allowed != result.has_value()) finding = "can_rm and seq_rm disagree";
            if (may_refuse(result)) {
                refused_++;
                break;
            }
            if (!finding) finding = judge(result, legal);
            if (legal) model_.rm(a, range);
            break;
        }
        case 7:
        case 8: {
            const int from = step.a % config_.n_seqs;
            const bool whole = step.d % 2 == 0;
            const Range copied = whole ? make_range(-1, -1) : range;
            const auto result =
                cells_.seq_cp(SeqId{from}, SeqId{b}, whole ? -1 : p0, whole ? -1 : p1);
            if (may_refuse(result)) {
                refused_++;
                break;
            }
            finding = judge(result, whole || legal);
            if (whole || legal) model_.cp(from, b, copied);
            break;
        }
        case 9: {
            const auto result = cells_.seq_add(SeqId{a}, p0, p1, delta);
            if (result) model_.add(a, range, delta);
            // What may be refused besides an inverted range: overflow, or no room to re-encode.
            if (!result && result.error().code == Code::kBadRange && legal && delta < 1000)
                finding = "a small shift was refused: " + result.error().message;
            if (result && !legal) finding = "an inverted range was shifted";
            refused_ += result ? 0 : 1;
            break;
        }
        case 10: {
            const int d = step.d % 6;
            if (slides()) break;
            const auto result = cells_.seq_div(SeqId{a}, p0, p1, d);
            if (result) model_.div(a, range, d);
            if (result && (!legal || d < 1)) finding = "a senseless division was done";
            if (!result && result.error().code == Code::kUnsupported && !may_refuse(result))
                finding = "a scalar position was refused";
            refused_ += result ? 0 : 1;
            break;
        }
        default:
            break;
    }
    return finding;
}

// What happens less often: clearing, keeping, compaction, promises, keepers.
CellsHistory::Finding CellsHistory::care(const Step& step) {
    const int a = step.a % config_.n_seqs;
    const auto number = static_cast<uint32_t>(std::abs(step.d));
    switch (number % 16) {
        case 0:
        case 1: {
            if (number % 5 != 0) return {};
            model_.rm(-1, make_range(-1, -1));
            return judge(cells_.clear(), true);
        }
        case 2: {
            model_.keep(a);
            return judge(cells_.seq_keep(SeqId{a}), true);
        }
        case 3:
        case 4:
        case 5:
        case 6: {
            const uint32_t most = number % 3 == 0 ? number % 40 : 100000;
            const auto moved = number % 2 == 0 ? cells_.defrag(most)
                                               : cells_.defrag_if_above(number % 9 / 10.0, most);
            if (!moved) return moved.error().message;
            if (*moved > most * cells_.n_groups()) return "compaction moved more than allowed";
            return {};
        }
        case 7:
        case 8: {
            SeqLimits limits;
            limits.guaranteed = number % 90;
            if (number % 4 == 1) limits = {};
            (void)cells_.set_limits(SeqId{a}, limits);
            return {};
        }
        case 9: {
            kept_.clear();
            kept_contents_.clear();
            return {};
        }
        case 10:
        case 11: {
            if (config_.max_checkpoints == 0 || model_.pos_max(a) < 0) return {};
            return judge(cells_.checkpoint(SeqId{a}), true);
        }
        default: {
            const uint32_t g = number % cells_.n_groups();
            const auto spans = cells_.spans(SeqId{a}, g);
            if (spans.empty() || kept_.size() > 10) return {};
            const Span span = spans[number % spans.size()];
            auto hold = cells_.keep(g, span);
            if (!hold) return hold.error().message;
            const auto first =
                contents_[g].begin() +
                static_cast<ptrdiff_t>(size_t{value(span.page)} * page_size(g) + span.first);
            kept_contents_.emplace_back(first, first + span.count);
            kept_.push_back(std::move(*hold));
            return {};
        }
    }
}

CellsHistory::Finding CellsHistory::judge(const Result<void>& result, bool legal) {
    refused_ += result ? 0 : 1;
    if (result.has_value() == legal) return {};
    return legal ? "a legal verb was refused: " + result.error().message
                 : std::string("an inverted range was accepted");
}

void CellsHistory::make_moves() {
    for (const CellMove& move : cells_.pending()) {
        const uint32_t page_size = this->page_size(move.group);
        std::vector<int>& contents = contents_[move.group];
        for (uint32_t k = 0; k < move.copy.count; k++)
            contents[value(move.copy.to) * page_size + move.copy.to_first + k] =
                contents[value(move.copy.from) * page_size + move.copy.from_first + k];
    }
    cells_.finish_moves();
}

void CellsHistory::poison() {
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        std::vector<int> seen(contents_[g].size(), kPoison);
        seen.back() = 0;
        for (const SeqId id : cells_.sequences())
            for (const Span& s : cells_.spans(id, g))
                for (uint32_t i = 0; i < s.count; i++) {
                    const uint32_t cell = value(s.page) * page_size(g) + s.first + i;
                    seen[cell] = contents_[g][cell];
                }
        for (const Hold& hold : kept_)
            for (uint32_t i = 0; hold.group() == g && i < hold.span().count; i++) {
                const uint32_t cell =
                    value(hold.span().page) * page_size(g) + hold.span().first + i;
                seen[cell] = contents_[g][cell];
            }
        contents_[g] = std::move(seen);
    }
}

CellsHistory::Finding CellsHistory::compare() const {
    for (size_t k = 0; k < kept_.size(); k++)
        for (uint32_t i = 0; i < kept_[k].span().count; i++) {
            const Span& span = kept_[k].span();
            const uint32_t cell = value(span.page) * page_size(kept_[k].group()) + span.first + i;
            if (contents_[kept_[k].group()][cell] != kept_contents_[k][i])
                return fmt::format("cell {} changed while it was kept", cell);
        }
    const auto expected = model_.by_sequence();
    if (expected.size() != cells_.sequences().size())
        return fmt::format("{} sequences hold something, {} should", cells_.sequences().size(),
                           expected.size());
    for (const auto& [seq, entries] : expected) {
        for (uint32_t g = 0; g < cells_.n_groups(); g++) {
            if (cells_.lets_go(g)) {
                auto finding = cells_.kind(g).is_recurrent() ? check_states(g, seq, entries)
                                                             : check_window(g, seq, entries);
                if (finding) return finding;
                continue;
            }
            std::vector<std::pair<Pos, int>> found;
            for (const Span& s : cells_.spans(SeqId{seq}, g))
                for (uint32_t i = 0; i < s.count; i++)
                    found.emplace_back(cells_.pos(g, s, i),
                                       contents_[g][value(s.page) * page_size(g) + s.first + i]);
            std::sort(found.begin(), found.end());
            if (found == entries) continue;
            return fmt::format("sequence {} sees {} cells in group {}, {} are right", seq,
                               found.size(), g, entries.size());
        }
        if (cells_.seq_pos_max(SeqId{seq}) != entries.back().first)
            return fmt::format("pos_max of sequence {} is {}, not {}", seq,
                               cells_.seq_pos_max(SeqId{seq}), entries.back().first);
        for (const Checkpoint& c : cells_.checkpoints(SeqId{seq}))
            if (const auto allowed = cells_.can_rm(SeqId{seq}, c.pos + 1, -1); !allowed)
                return "a checkpoint is lost: " + allowed.error().message;
        if (cells_.checkpoints(SeqId{seq}).size() > config_.max_checkpoints)
            return std::string("a sequence has more checkpoints than allowed");
        if (cells_.any_lets_go()) continue;
        if (cells_.seq_pos_min(SeqId{seq}) != entries.front().first)
            return fmt::format("pos_min of sequence {} is {}, not {}", seq,
                               cells_.seq_pos_min(SeqId{seq}), entries.front().first);
    }
    return {};
}

// Every state that is kept has taken up just the tokens up to its position; the newest is there.
CellsHistory::Finding CellsHistory::check_states(
    uint32_t group, int seq, const std::vector<std::pair<Pos, int>>& entries) const {
    const auto spans = cells_.spans(SeqId{seq}, group);
    if (spans.empty() || cells_.pos(group, spans.back(), 0) != entries.back().first)
        return fmt::format("sequence {} has no state at {}", seq, entries.back().first);
    for (const Span& s : spans) {
        const Pos pos = cells_.pos(group, s, 0);
        int state = 0;
        for (const auto& [p, token] : entries)
            if (p <= pos) state = take_up(state, token);
        if (contents_[group][value(s.page) + s.first] != state)
            return fmt::format("the state of sequence {} at {} is not that of its tokens", seq,
                               pos);
    }
    return {};
}

// What the next query sees is there, and nothing that is there is wrong.
CellsHistory::Finding CellsHistory::check_window(
    uint32_t group, int seq, const std::vector<std::pair<Pos, int>>& entries) const {
    std::vector<std::pair<Pos, int>> found;
    for (const Span& s : cells_.spans(SeqId{seq}, group))
        for (uint32_t i = 0; i < s.count; i++)
            found.emplace_back(cells_.pos(group, s, i),
                               contents_[group][value(s.page) * page_size(group) + s.first + i]);
    std::sort(found.begin(), found.end());
    if (!std::includes(entries.begin(), entries.end(), found.begin(), found.end()))
        return fmt::format("sequence {} sees a wrong cell in group {}", seq, group);
    std::vector<std::pair<Pos, int>> needed;
    const Range window = cells_.kind(group).carries(entries.back().first);
    for (const auto& entry : entries)
        if (window.contains(entry.first)) needed.push_back(entry);
    if (std::includes(found.begin(), found.end(), needed.begin(), needed.end())) return {};
    return fmt::format("sequence {} lacks a cell of its window from {} on in group {}", seq,
                       window.begin, group);
}

bool CellsHistory::same_cells(int a, int b) const {
    for (uint32_t g = 0; g < cells_.n_groups(); g++) {
        const auto x = cells_.spans(SeqId{a}, g), y = cells_.spans(SeqId{b}, g);
        if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
    }
    return true;
}

}  // namespace cellar::testing
