#pragma once

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "base/types.h"

namespace cellar::testing {

// The judge of Cells: an attention memory as a plain list. Slow, and plainly right.
class CellsModel {
public:
    struct Entry {
        int seq;
        Pos pos;
        int token;
    };

    void append(int seq, Pos pos, int token) { list_.push_back({seq, pos, token}); }
    void rm(int seq, Range r) {
        std::erase_if(list_, [&](const Entry& e) { return named(seq, e) && r.contains(e.pos); });
    }
    void cp(int from, int to, Range r) {
        if (from == to) return;
        rm(to, r);
        const std::vector<Entry> before = list_;
        for (const Entry& e : before)
            if (e.seq == from && r.contains(e.pos)) list_.push_back({to, e.pos, e.token});
    }
    void keep(int seq) {
        std::erase_if(list_, [&](const Entry& e) { return !named(seq, e); });
    }
    void add(int seq, Range r, Pos delta) {
        for (Entry& e : list_)
            if (named(seq, e) && r.contains(e.pos)) e.pos += delta;
        std::erase_if(list_, [](const Entry& e) { return e.pos < 0; });
    }
    void div(int seq, Range r, int d) {
        for (Entry& e : list_)
            if (named(seq, e) && r.contains(e.pos)) e.pos /= d;
    }

    Pos pos_max(int seq) const {
        Pos max = -1;
        for (const Entry& e : list_)
            if (e.seq == seq) max = std::max(max, e.pos);
        return max;
    }
    // (position, token) of a sequence, sorted; or by sequence.
    std::map<int, std::vector<std::pair<Pos, int>>> by_sequence() const {
        std::map<int, std::vector<std::pair<Pos, int>>> sequences;
        for (const Entry& e : list_)
            sequences[e.seq].emplace_back(e.pos, e.token);
        for (auto& entry : sequences)
            std::sort(entry.second.begin(), entry.second.end());
        return sequences;
    }

private:
    static bool named(int seq, const Entry& e) { return seq < 0 || e.seq == seq; }
    std::vector<Entry> list_;
};

}  // namespace cellar::testing
