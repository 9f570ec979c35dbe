#pragma once

#include <cstddef>

#include "base/error.h"

namespace cellar {

// Anonymous memory as address space: zero everywhere, and committed page by page as it is first
// written or read. Unmapped with its owner.
class HostMapping {
public:
    // Errors: kBackend with the system's reason.
    static Result<HostMapping> create(size_t bytes);

    HostMapping(HostMapping&& other) noexcept;
    HostMapping& operator=(HostMapping&& other) noexcept;
    ~HostMapping();

    void* data() const { return data_; }
    size_t size() const { return size_; }

    // Commits all of it now, whatever it holds. Errors: kBackend with the system's reason.
    Result<void> commit();

    // Gives all committed memory back; every byte is zero again.
    void zero();

private:
    HostMapping(void* data, size_t size) : data_(data), size_(size) {}

    void* data_ = nullptr;  // null after a move
    size_t size_ = 0;
};

}  // namespace cellar
