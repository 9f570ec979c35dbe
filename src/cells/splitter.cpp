#include "cells/splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace cellar {
namespace {

using Ubatches = std::vector<std::vector<uint32_t>>;

bool same_set(const ItemSets& sets, uint32_t a, uint32_t b) {
    const auto x = sets.of(a), y = sets.of(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

// The items of sequences that share items, directly or through others, belong together.
class Components {
public:
    explicit Components(const ItemSets& sets) : parent_(sets.n_seqs) {
        std::iota(parent_.begin(), parent_.end(), 0u);
        for (uint32_t i = 0; i < sets.n_items(); i++)
            for (const uint32_t s : sets.of(i))
                parent_[root(s)] = root(sets.of(i)[0]);
        std::vector<uint32_t> index(sets.n_seqs, UINT32_MAX);
        for (uint32_t i = 0; i < sets.n_items(); i++) {
            uint32_t& at = index[root(sets.of(i)[0])];
            if (at == UINT32_MAX) {
                at = static_cast<uint32_t>(items_.size());
                items_.emplace_back();
            }
            items_[at].push_back(i);
        }
    }

    const Ubatches& items() const { return items_; }  // in order of their first items

private:
    uint32_t root(uint32_t s) {
        while (parent_[s] != s)
            s = parent_[s] = parent_[parent_[s]];
        return s;
    }

    std::vector<uint32_t> parent_;
    Ubatches items_;
};

Ubatches split_simple(const ItemSets& sets, uint32_t max_ubatch) {
    Ubatches ubatches;
    for (uint32_t i = 0; i < sets.n_items(); i++) {
        const bool full = i == 0 || ubatches.back().size() == max_ubatch || sets.ends(i - 1);
        if (full) ubatches.emplace_back();
        ubatches.back().push_back(i);
    }
    return ubatches;
}

Ubatches split_per_sequence(const ItemSets& sets, uint32_t max_ubatch) {
    Ubatches ubatches;
    const Components components(sets);
    for (const auto& items : components.items()) {
        ubatches.emplace_back();
        for (const uint32_t i : items) {
            std::vector<uint32_t>* last = &ubatches.back();
            if (last->size() == max_ubatch ||
                (!last->empty() && (!same_set(sets, last->back(), i) || sets.ends(last->back())))) {
                ubatches.emplace_back();
                last = &ubatches.back();
            }
            last->push_back(i);
        }
    }
    return ubatches;
}

// Rounds in which every sequence whose next item is due advances by the same number of items.
class EqualSplit {
public:
    EqualSplit(const ItemSets& sets, uint32_t max_ubatch)
        : sets_(sets), max_ubatch_(max_ubatch), queue_(sets.n_seqs), next_(sets.n_seqs, 0) {
        for (uint32_t i = 0; i < sets.n_items(); i++)
            for (const uint32_t s : sets.of(i))
                queue_[s].push_back(i);
    }

    Ubatches run() {
        Ubatches ubatches;
        for (uint32_t left = sets_.n_items(); left > 0;) {
            const std::vector<uint32_t> due = due_items();
            const auto n_lanes = static_cast<uint32_t>(due.size());
            uint32_t n = std::max(1u, max_ubatch_ / n_lanes);
            for (const uint32_t item : due)
                n = std::min(n, run_length(item, n));
            ubatches.emplace_back();
            for (const uint32_t item : due)
                advance(item, n, ubatches.back());
            left -= n * n_lanes;
        }
        return ubatches;
    }

private:
    // Items that are the next one of all their sequences, at most one ubatch of them. There always
    // is one: the earliest item left.
    std::vector<uint32_t> due_items() const {
        std::vector<uint32_t> due;
        for (uint32_t s = 0; s < sets_.n_seqs && due.size() < max_ubatch_; s++) {
            if (next_[s] == queue_[s].size()) continue;
            const uint32_t item = queue_[s][next_[s]];
            const auto set = sets_.of(item);
            const bool first_of_set = *std::min_element(set.begin(), set.end()) == s;
            const bool is_due = std::all_of(set.begin(), set.end(), [&](uint32_t other) {
                return queue_[other][next_[other]] == item;
            });
            if (first_of_set && is_due) due.push_back(item);
        }
        return due;
    }

    // How many items from `item` on, up to `most`, extend just the same sequences.
    uint32_t run_length(uint32_t item, uint32_t most) const {
        uint32_t n = 1;
        for (uint32_t at = item; n < most && !sets_.ends(at); n++) {
            uint32_t following = UINT32_MAX;
            for (const uint32_t s : sets_.of(item)) {
                if (next_[s] + n >= queue_[s].size()) return n;
                const uint32_t candidate = queue_[s][next_[s] + n];
                if (following != UINT32_MAX && candidate != following) return n;
                following = candidate;
            }
            if (!same_set(sets_, item, following)) return n;
            at = following;
        }
        return n;
    }

    void advance(uint32_t item, uint32_t n, std::vector<uint32_t>& ubatch) {
        const auto set = sets_.of(item);
        for (uint32_t k = 0; k < n; k++)
            ubatch.push_back(queue_[set[0]][next_[set[0]] + k]);
        for (const uint32_t s : set)
            next_[s] += n;
    }

    const ItemSets& sets_;
    const uint32_t max_ubatch_;
    std::vector<std::vector<uint32_t>> queue_;  // by sequence: its items
    std::vector<size_t> next_;                  // by sequence: how many are placed
};

// Packs whole components, in order, as many as fit in a ubatch and the mode allows.
Result<Ubatches> split_whole(const ItemSets& sets, const SplitOptions& options) {
    Ubatches ubatches;
    size_t previous = 0;
    const Components components(sets);
    for (const auto& items : components.items()) {
        if (items.size() > options.max_ubatch)
            return fail(Code::kInvalidArgument,
                        fmt::format("a sequence that must stay whole has {} items, but a ubatch "
                                    "takes {}",
                                    items.size(), options.max_ubatch));
        const bool fits = !ubatches.empty() &&
                          ubatches.back().size() + items.size() <= options.max_ubatch &&
                          options.splitting != Splitting::kPerSequence &&
                          (options.splitting != Splitting::kEqual || items.size() == previous);
        if (!fits) ubatches.emplace_back();
        ubatches.back().insert(ubatches.back().end(), items.begin(), items.end());
        previous = items.size();
    }
    return ubatches;
}

}  // namespace

Result<std::vector<std::vector<uint32_t>>> split(const ItemSets& sets,
                                                 const SplitOptions& options) {
    if (options.max_ubatch == 0) return fail(Code::kInvalidArgument, "a ubatch of 0 items");
    if (options.whole_sequences) return split_whole(sets, options);
    switch (options.splitting) {
        case Splitting::kEqual:
            return EqualSplit(sets, options.max_ubatch).run();
        case Splitting::kPerSequence:
            return split_per_sequence(sets, options.max_ubatch);
        case Splitting::kSimple:
            break;
    }
    return split_simple(sets, options.max_ubatch);
}

}  // namespace cellar
