#include "cells/reserves.h"

namespace cellar {

const Reserves::Account* Reserves::find(SeqId seq) const {
    if (accounts_.empty()) return nullptr;
    const auto entry = accounts_.find(value(seq));
    return entry == accounts_.end() ? nullptr : &entry->second;
}

Reserves::Account& Reserves::open(SeqId seq) {
    Account& account = accounts_[value(seq)];
    account.banked.resize(total_.size(), 0);
    return account;
}

void Reserves::close(SeqId seq) {
    const auto entry = accounts_.find(value(seq));
    if (entry == accounts_.end()) return;
    for (uint32_t g = 0; g < total_.size(); g++)
        set_banked(entry->second, g, 0);
    accounts_.erase(entry);
}

uint32_t Reserves::banked(SeqId seq, uint32_t group) const {
    const Account* account = find(seq);
    return account == nullptr ? 0 : account->banked[group];
}

void Reserves::set_banked(Account& account, uint32_t group, uint32_t pages) {
    total_[group] = total_[group] - account.banked[group] + pages;
    account.banked[group] = pages;
}

bool Reserves::draw(SeqId seq, uint32_t group) {
    if (banked(seq, group) == 0) return false;
    Account& account = accounts_.find(value(seq))->second;
    set_banked(account, group, account.banked[group] - 1);
    return true;
}

}  // namespace cellar
