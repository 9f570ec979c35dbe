#include "gguf/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace cellar {

namespace {

// An open file descriptor that closes itself; the mapping stays valid without it.
class Descriptor {
public:
    explicit Descriptor(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }

    int get() const { return fd_; }

private:
    int fd_;
};

tl::unexpected<Error> refused(const std::filesystem::path& path, const char* what) {
    const std::string reason = std::generic_category().message(errno);
    return fail(Code::kIo, fmt::format("{}: cannot {} it: {}", path.string(), what, reason));
}

FileStamp stamp_of(const struct stat& status) {
    constexpr int64_t kNsPerS = 1'000'000'000;
    return {.size = static_cast<uint64_t>(status.st_size),
            .modified_ns = status.st_mtim.tv_sec * kNsPerS + status.st_mtim.tv_nsec,
            .device = status.st_dev,
            .inode = status.st_ino};
}

size_t page_size() {
    return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
    // Not blocking, so that a named pipe is refused below instead of waiting for a writer.
    const Descriptor file(path.c_str());
    if (file.get() < 0) return refused(path, "open");

    struct stat status {};
    if (::fstat(file.get(), &status) != 0) return refused(path, "examine");
    if (!S_ISREG(status.st_mode))
        return fail(Code::kBadFile, fmt::format("{}: this is not a regular file", path.string()));
    if (status.st_size <= 0)
        return fail(Code::kBadFile, fmt::format("{}: the file is empty", path.string()));

    const auto size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) return refused(path, "map");
    return std::shared_ptr<const MappedFile>(
        new MappedFile(static_cast<const std::byte*>(data), size, stamp_of(status)));
}

MappedFile::~MappedFile() {
    ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::prefetch(size_t offset, size_t size) const {
    if (offset >= size_) return;
    const size_t begin = offset - offset % page_size();
    const size_t end = offset + std::min(size, size_ - offset);
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

void MappedFile::release(size_t offset, size_t size) const {
    if (offset >= size_) return;
    const size_t page = page_size();
    const size_t begin = (offset + page - 1) / page * page;
    const size_t end = (offset + std::min(size, size_ - offset)) / page * page;
    if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace cellar
