// Wildcards and bad ids: whatever a caller passes to a verb has a documented result, never an
// abort, and a plain list says which.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cells/audit.h"
#include "cells/cells.h"
#include "testing/cells_model.h"

namespace cellar {
namespace {

using testing::CellsModel;

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

// Ids that hold something, ids that never do, the wildcard, and what is no id.
constexpr std::array<int, 9> kIds = {0, 1, 7, 1000000000, kMost, 12345, -1, -2, kLeast};
constexpr size_t kHolders = 5;  // of kIds, the first hold something
constexpr size_t kMostCells = 60;
constexpr int kRun = 9;  // tokens that one call appends

enum class Verb { kRm, kCp, kKeep, kAdd, kDiv, kClear, kAppend };

// How often each verb is drawn: so many tickets of them all.
struct Tickets {
    Verb verb;
    int n;
};
constexpr std::array<Tickets, 7> kTickets = {{{Verb::kAppend, 50},
                                              {Verb::kRm, 12},
                                              {Verb::kCp, 16},
                                              {Verb::kAdd, 12},
                                              {Verb::kDiv, 8},
                                              {Verb::kKeep, 1},
                                              {Verb::kClear, 1}}};

struct Call {
    Verb verb = Verb::kRm;
    int a = 0, b = 0;
    Pos p0 = 0, p1 = 0;
    int32_t d = 0;
};

// Ranges and steps of every kind: open, small, empty, inverted, at the ends of 32 bits.
class Caller {
public:
    Call draw() {
        Call call;
        call.verb = verb();
        call.a = kIds[static_cast<size_t>(pick(kIds.size()))];
        call.b = kIds[static_cast<size_t>(pick(kIds.size()))];
        call.p0 = position();
        call.p1 = pick(6) == 0 ? call.p0 : position();
        if (call.p0 > call.p1 && pick(3) > 0) std::swap(call.p0, call.p1);
        constexpr std::array<int32_t, 5> kExtremes = {kLeast, kLeast + 1, kMost, kMost - 40, -100};
        call.d =
            pick(8) == 0 ? kExtremes[static_cast<size_t>(pick(kExtremes.size()))] : pick(15) - 5;
        return call;
    }

private:
    Verb verb() {
        int ticket = pick(100);
        for (const Tickets& tickets : kTickets)
            if ((ticket -= tickets.n) < 0) return tickets.verb;
        return Verb::kAppend;
    }
    int pick(size_t n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
    Pos position() {
        constexpr std::array<Pos, 6> kExtremes = {kLeast, -7, -1, 0, kMaxPos - 1, kMaxPos};
        return pick(5) == 0 ? kExtremes[static_cast<size_t>(pick(kExtremes.size()))] : pick(80);
    }

    std::minstd_rand random_{21};
};

// Cells and the list side by side; each cell's token is kept as if it were its tensor.
class SideBySide {
public:
    SideBySide() : cells_(*Cells::create({{4096}, 4, 1})), tokens_(4096, -1) {}

    // What contradicts the list after this call, or nothing.
    std::optional<std::string> make(const Call& call) {
        const auto expected = foretell(call);
        const auto result = perform(call);
        const auto code = result ? std::nullopt : std::optional<Code>(result.error().code);
        refused_ += result ? 0 : 1;
        if (code != expected) return fmt::format("answered {}, not {}", name(code), name(expected));
        for (const CellMove& move : cells_.pending())
            copy(move.copy);
        cells_.finish_moves();
        if (auto finding = audit(cells_)) return finding;
        return compare();
    }

    int refused() const { return refused_; }
    uint64_t compared() const { return compared_; }  // cells, over all calls

private:
    static std::string name(std::optional<Code> code) {
        return code ? fmt::format("code {}", static_cast<int>(*code)) : "success";
    }
    static ptrdiff_t at(PageId page, uint32_t offset) {
        return static_cast<ptrdiff_t>(value(page) * 4 + offset);
    }

    void copy(const CellCopy& c) {
        std::copy_n(tokens_.begin() + at(c.from, c.from_first), c.count,
                    tokens_.begin() + at(c.to, c.to_first));
    }

    // What the header promises, from the list alone; does it there when nothing is wrong.
    std::optional<Code> foretell(const Call& call) {
        const Range range = make_range(call.p0, call.p1);
        const bool inverted = range.begin > range.end;
        const bool ranged = call.verb != Verb::kKeep && call.verb != Verb::kClear;
        if (call.verb == Verb::kAppend) return foretell_append(call);
        if (call.verb == Verb::kClear) return model_.rm(-1, make_range(-1, -1)), std::nullopt;
        if (call.a < -1 || (call.verb == Verb::kCp && (call.a < 0 || call.b < 0)))
            return Code::kInvalidArgument;
        if (ranged && inverted) return Code::kBadRange;
        if (call.verb == Verb::kAdd && overflows(call.a, range, call.d)) return Code::kBadRange;
        if (call.verb == Verb::kDiv && call.d < 1) return Code::kInvalidArgument;
        if (call.verb == Verb::kRm) model_.rm(call.a, range);
        if (call.verb == Verb::kCp) model_.cp(call.a, call.b, range);
        if (call.verb == Verb::kKeep) model_.keep(call.a);
        if (call.verb == Verb::kAdd) model_.add(call.a, range, call.d);
        if (call.verb == Verb::kDiv) model_.div(call.a, range, call.d);
        return {};
    }

    // Appends go to the ids that hold something, and to what is no sequence, wildcard included.
    std::optional<Code> foretell_append(const Call& call) {
        if (call.a < 0) return Code::kInvalidArgument;
        if (!appends(call)) return {};
        const Pos last = model_.pos_max(call.a);
        if (at_next(call)) {
            if (last >= kMaxPos - kRun) return Code::kBadRange;
            for (int i = 0; i < kRun; i++)
                model_.append(call.a, last + 1 + i, token_ + i);
            return {};
        }
        if (call.p0 <= last || call.p0 < 0 || call.p0 == kMaxPos) return Code::kBadRange;
        model_.append(call.a, call.p0, token_);
        return {};
    }

    static bool at_next(const Call& call) { return call.d < 3 || call.p0 == kNextPos; }

    bool appends(const Call& call) const {
        if (std::find(kIds.begin(), kIds.begin() + kHolders, call.a) == kIds.begin() + kHolders)
            return false;
        return cells_.n_cells(SeqId{call.a}, 0) < kMostCells;
    }

    bool overflows(int seq, Range range, int64_t delta) const {
        for (const auto& [id, entries] : model_.by_sequence())
            for (const auto& entry : entries)
                if ((seq == -1 || seq == id) && range.contains(entry.first) &&
                    entry.first + delta >= kMaxPos)
                    return true;
        return false;
    }

    Result<void> perform(const Call& call) {
        const SeqId a{call.a};
        switch (call.verb) {
            case Verb::kRm:
                return cells_.seq_rm(a, call.p0, call.p1);
            case Verb::kCp:
                return cells_.seq_cp(a, SeqId{call.b}, call.p0, call.p1);
            case Verb::kKeep:
                return cells_.seq_keep(a);
            case Verb::kAdd:
                return cells_.seq_add(a, call.p0, call.p1, call.d);
            case Verb::kDiv:
                return cells_.seq_div(a, call.p0, call.p1, call.d);
            case Verb::kClear:
                return cells_.clear();
            case Verb::kAppend:
                break;
        }
        return append(call);
    }

    Result<void> append(const Call& call) {
        if (call.a >= 0 && !appends(call)) return {};
        Batch batch;
        const int n = at_next(call) ? kRun : 1;
        for (int i = 0; i < n; i++)
            batch.add(token_ + i, SeqId{call.a}, at_next(call) ? kNextPos : call.p0);
        auto plan = cells_.prepare(batch, {});
        if (!plan) return pass(std::move(plan));
        const UbatchGroup& ubatch = plan->ubatch(0).groups[0];
        for (const CellCopy& due : ubatch.copies)
            copy(due);
        for (const uint32_t cell : ubatch.cells)
            tokens_[cell] = token_++;
        return cells_.commit(*plan, 0);
    }

    std::optional<std::string> compare() {
        const auto expected = model_.by_sequence();
        if (cells_.sequences().size() != expected.size())
            return fmt::format("{} sequences hold something, not {}", cells_.sequences().size(),
                               expected.size());
        for (const int id : kIds) {
            std::vector<std::pair<Pos, int>> seen;
            for (const Span& s : cells_.spans(SeqId{id}, 0))
                for (uint32_t i = 0; i < s.count; i++)
                    seen.emplace_back(cells_.pos(0, s, i),
                                      tokens_[static_cast<size_t>(at(s.page, s.first + i))]);
            std::sort(seen.begin(), seen.end());
            const auto entry = expected.find(id);
            const auto right = entry == expected.end() ? decltype(seen){} : entry->second;
            compared_ += seen.size();
            if (seen != right)
                return fmt::format("sequence {} sees {} cells, {} are right", id, seen.size(),
                                   right.size());
            if (cells_.seq_pos_min(SeqId{id}) != (right.empty() ? -1 : right.front().first) ||
                cells_.seq_pos_max(SeqId{id}) != (right.empty() ? -1 : right.back().first))
                return fmt::format("sequence {} reaches from {} to {}", id,
                                   cells_.seq_pos_min(SeqId{id}), cells_.seq_pos_max(SeqId{id}));
        }
        return {};
    }

    Cells cells_;
    CellsModel model_;
    std::vector<int> tokens_;  // by cell
    int token_ = 0;
    int refused_ = 0;
    uint64_t compared_ = 0;
};

TEST(ScenarioR21, RandomCallsAnswerWhatAListSays) {
    SideBySide both;
    Caller caller;
    for (int i = 0; i < 10000; i++) {
        const Call call = caller.draw();
        const auto finding = both.make(call);
        ASSERT_EQ(finding, std::nullopt)
            << fmt::format("call {}: verb {} a {} b {} p0 {} p1 {} d {}", i,
                           static_cast<int>(call.verb), call.a, call.b, call.p0, call.p1, call.d);
    }
    EXPECT_GT(both.refused(), 2000);
    EXPECT_LT(both.refused(), 6000);
    EXPECT_GT(both.compared(), 10000u * 20) << "an empty memory tests nothing";
}

}  // namespace
}  // namespace cellar
