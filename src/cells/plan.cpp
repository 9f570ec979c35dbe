#include "cells/plan.h"

#include <utility>

#include "cells/cells.h"

namespace cellar {

Plan::Plan(Plan&& other) noexcept {
    *this = std::move(other);
}

Plan& Plan::operator=(Plan&& other) noexcept {
    if (this == &other) return *this;
    cancel();
    cells_ = std::exchange(other.cells_, nullptr);
    serial_ = other.serial_;
    committed_ = other.committed_;
    ubatches_ = std::move(other.ubatches_);
    changes_ = std::move(other.changes_);
    departures_ = std::move(other.departures_);
    next_change_ = other.next_change_;
    return *this;
}

bool Plan::receive(uint32_t group, PageId page) {
    for (Departure& departure : departures_) {
        const bool this_one = departure.group == group && departure.page == page;
        if (!this_one || !departure.wanted || departure.held) continue;
        departure.held = true;
        return true;
    }
    return false;
}

void Plan::cancel() {
    if (cells_ != nullptr) cells_->cancel(*this);
}

}  // namespace cellar
