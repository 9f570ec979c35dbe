#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace cellar {

// What one sequence may count on and may take, in cells of each group.
struct SeqLimits {
    uint32_t guaranteed = 0;        // pages are set aside for what it does not hold yet
    uint32_t maximum = UINT32_MAX;  // prepare refuses to grow it further
};

// Pages set aside for sequences that were promised room: a bank for each of them and group. Banks
// are numbers, no pages: the pool has at least so many free ones, and others may not take them.
class Reserves {
public:
    explicit Reserves(uint32_t n_groups) : total_(n_groups, 0) {}

    struct Account {
        SeqLimits limits;
        std::vector<uint32_t> banked;  // pages, by group
    };

    // Null for a sequence without limits.
    const Account* find(SeqId seq) const;
    std::unordered_map<int32_t, Account>& accounts() { return accounts_; }
    Account& open(SeqId seq);
    void close(SeqId seq);

    // Pages set aside for all sequences, and for this one.
    uint32_t total(uint32_t group) const { return total_[group]; }
    uint32_t banked(SeqId seq, uint32_t group) const;

    void set_banked(Account& account, uint32_t group, uint32_t pages);

    // Takes a page from the sequence's bank; false when it has none.
    bool draw(SeqId seq, uint32_t group);

private:
    std::unordered_map<int32_t, Account> accounts_;
    std::vector<uint32_t> total_;  // by group: the sum of all banks
};

}  // namespace cellar
