#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace cellar {

Task::Task(RequestId id_, Request request_, Sampler sampler_)
    : id(id_),
      request(std::move(request_)),
      max_tokens(request.max_tokens.value_or(std::numeric_limits<uint32_t>::max())),
      sampler(std::move(sampler_)),
      tokens(request.prompt) {
    usage.prompt = static_cast<uint32_t>(tokens.size());
}

void Scheduler::add(std::unique_ptr<Task> task, uint64_t cells) {
    task->cells = in_pages(cells);
    waiting_.push_back(std::move(task));
}

Task* Scheduler::admit(uint64_t held) {
    if (waiting_.empty() || waiting_.front()->cells > free_ + in_pages(held) ||
        (held == 0 && !take_text())) {
        return nullptr;
    }
    free_ = free_ + in_pages(held) - waiting_.front()->cells;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    return running_.back().get();
}

std::vector<Scheduler::Pick> Scheduler::pick(size_t budget) {
    std::vector<Pick> picks;
    const size_t n = running_.size();
    const size_t first = turn_ < n ? turn_ : 0;
    turn_ = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t at = (first + i) % n;
        if (!running_[at]->decoding()) {
            continue;
        }
        if (budget == 0) {
            turn_ = at;  // the first one left out
            break;
        }
        picks.push_back({running_[at].get(), 1});
        budget--;
    }
    for (size_t i = 0; i < n && budget > 0; i++) {
        Task& task = *running_[i];
        if (!task.decoding()) {
            const size_t count = std::min(budget, task.due());
            picks.push_back({&task, count});
            budget -= count;
        }
    }
    return picks;
}

void Scheduler::remove(RequestId id, uint64_t kept) {
    const auto is_it = [id](const std::unique_ptr<Task>& task) { return task->id == id; };
    const auto it = std::find_if(running_.begin(), running_.end(), is_it);
    if (it != running_.end()) {
        assert(in_pages(kept) <= (*it)->cells);
        free_ += (*it)->cells - in_pages(kept);
        free_texts_ += kept == 0 ? 1 : 0;
        running_.erase(it);
    } else {
        // Nothing was set aside yet.
        waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), is_it));
    }
}

void Scheduler::set_aside(uint64_t cells) {
    assert(cells == 0 || (in_pages(cells) <= free_ && free_texts_ > 0));
    free_ -= in_pages(cells);
    free_texts_ -= cells > 0 ? 1 : 0;
}

void Scheduler::give_back(uint64_t cells) {
    free_ += in_pages(cells);
    free_texts_ += cells > 0 ? 1 : 0;
}

bool Scheduler::take_text() {
    if (free_texts_ == 0) {
        return false;
    }
    free_texts_--;
    return true;
}

Task* Scheduler::find(RequestId id) const {
    for (const auto& task : running_) {
        if (task->id == id) {
            return task.get();
        }
    }
    for (const auto& task : waiting_) {
        if (task->id == id) {
            return task.get();
        }
    }
    return nullptr;
}

}  // namespace cellar
