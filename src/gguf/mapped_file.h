#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.h"

namespace cellar {

// What tells a file from what stood under its name at another time.
struct FileStamp {
    uint64_t size = 0;
    int64_t modified_ns = 0;  // since 1970
    uint64_t device = 0;
    uint64_t inode = 0;

    friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// A whole file, mapped read-only and private. The bytes are those of the file that was opened,
// even when its name is given to another file later. Truncating the file while it is mapped is
// beyond our protection, as with every mapping: replace model files, do not rewrite them.
class MappedFile {
public:
    // Shared, because weights that point into the mapping outlive the GgufFile they came from.
    // Errors: kIo with the system's reason; kBadFile if it is not a regular file or is empty.
    static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);

    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }

    // As the file was when it was opened.
    const FileStamp& stamp() const { return stamp_; }

    // Tells the system that [offset, offset + size) will be read soon: it may read ahead.
    // Whole pages that the range touches; the range is clipped to the file.
    void prefetch(size_t offset, size_t size) const;

    // Gives the range's pages back to the system; reading them again costs a page fault. Only
    // pages that lie wholly inside the range, so neighbours stay resident.
    void release(size_t offset, size_t size) const;

private:
    MappedFile(const std::byte* data, size_t size, const FileStamp& stamp)
        : data_(data), size_(size), stamp_(stamp) {}

    const std::byte* data_;
    size_t size_;
    FileStamp stamp_;
};

}  // namespace cellar
