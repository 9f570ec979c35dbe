#include "memory/host_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cellar {

Result<HostMapping> HostMapping::create(size_t bytes) {
    // NORESERVE: a pool larger than RAM is fine as long as it is not all used.
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return fail(Code::kBackend, fmt::format("cannot reserve {} bytes of address space: {}",
                                                bytes, std::strerror(errno)));
    }
    return HostMapping(data, bytes);
}

HostMapping::HostMapping(HostMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {
}

HostMapping& HostMapping::operator=(HostMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

HostMapping::~HostMapping() {
    if (data_ != nullptr) munmap(data_, size_);
}

Result<void> HostMapping::commit() {
    // Linux 5.14 and later. What the C library's headers do not know yet has this number.
    constexpr int kPopulateWrite = 23;
    if (madvise(data_, size_, kPopulateWrite) == 0) return {};
    if (errno != EINVAL) {
        return fail(Code::kBackend,
                    fmt::format("cannot commit {} bytes: {}", size_, std::strerror(errno)));
    }
    constexpr size_t kSmallestPage = 4096;
    auto* bytes = static_cast<volatile char*>(data_);
    for (size_t i = 0; i < size_; i += kSmallestPage)
        bytes[i] = bytes[i];
    return {};
}

void HostMapping::zero() {
    // Dropped pages of private anonymous memory read as zero; where the kernel refuses (locked
    // memory), writing zeros gives the same at the price of committing everything.
    if (madvise(data_, size_, MADV_DONTNEED) != 0) std::memset(data_, 0, size_);
}

}  // namespace cellar
