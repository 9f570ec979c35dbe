#pragma once

#include <utility>

#include "cells/page_pool.h"
#include "cells/span.h"

namespace cellar {

// Keeps the cells of a span alive without being a sequence: how the prefix tree and running saves
// hold pages. A page that only Holds keep is cached. Move-only; letting go is the destructor. The
// Cells that issued it must outlive it.
class Hold {
public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), group_(other.group_), span_(other.span_) {}
    Hold& operator=(Hold&& other) noexcept {
        if (this != &other) {
            release();
            pool_ = std::exchange(other.pool_, nullptr);
            group_ = other.group_;
            span_ = other.span_;
        }
        return *this;
    }
    ~Hold() { release(); }

    // Lets go. Again: does nothing.
    void release() {
        if (pool_ != nullptr) pool_->release(span_.page, span_.end(), PagePool::Holder::kKeeper);
        pool_ = nullptr;
    }

    bool holds() const { return pool_ != nullptr; }
    uint32_t group() const { return group_; }
    const Span& span() const { return span_; }

private:
    friend class Cells;
    Hold(PagePool& pool, uint32_t group, const Span& span)
        : pool_(&pool), group_(group), span_(span) {
        pool_->hold(span.page, span.end(), PagePool::Holder::kKeeper);
    }

    PagePool* pool_ = nullptr;
    uint32_t group_ = 0;
    Span span_;
};

}  // namespace cellar
