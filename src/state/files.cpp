#include "state/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cellar {

Result<std::unique_ptr<FileSink>> FileSink::create(const std::string& path, Disk& disk,
                                                   bool durable) {
    // A rename would put a file in the place of /dev/null, too, to whom that is allowed.
    std::error_code unknown;
    const auto status = std::filesystem::status(path, unknown);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        return fail(Code::kIo, fmt::format("{}: it is no regular file, and is not replaced", path));
    std::unique_ptr<FileSink> sink(new FileSink(path, disk, durable));
    auto file = disk.create(sink->part());
    if (!file) return pass(std::move(file));
    sink->file_ = *std::move(file);
    return sink;
}

FileSink::~FileSink() {
    // Removed while it is still locked, so that it is nobody else's.
    if (file_ && !finished_) disk_.remove(part());
}

Result<void> FileSink::write(std::span<const std::byte> bytes) {
    return file_->write(bytes);
}

Result<void> FileSink::finish() {
    if (durable_) {
        if (auto synced = file_->sync(); !synced) return synced;
    }
    if (auto renamed = disk_.rename(part(), path_); !renamed) return renamed;
    finished_ = true;
    return durable_ ? disk_.sync_folder_of(path_) : Result<void>();
}

Result<std::unique_ptr<FileSource>> FileSource::open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status = {};
    if (fd < 0 || ::fstat(fd, &status) != 0) {
        const int reason = errno;
        if (fd >= 0) ::close(fd);
        return fail(Code::kIo, fmt::format("{}: cannot read it: {}", path, std::strerror(reason)));
    }
    if (!S_ISREG(status.st_mode)) {
        ::close(fd);
        return fail(Code::kBadFile, fmt::format("{}: it is no regular file", path));
    }
    return std::unique_ptr<FileSource>(
        new FileSource(path, fd, static_cast<uint64_t>(status.st_size)));
}

FileSource::~FileSource() {
    ::close(fd_);
}

Result<size_t> FileSource::read(std::span<std::byte> bytes) {
    bytes = bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), size_ - at_)));
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n =
            ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at_ + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return fail(Code::kIo,
                        fmt::format("{}: cannot read it: {}", path_, std::strerror(errno)));
        if (n == 0) break;  // it was cut short since it was opened
        done += static_cast<size_t>(n);
    }
    at_ += done;
    return done;
}

Result<void> FileSource::skip(uint64_t n) {
    at_ += std::min(n, size_ - at_);
    return {};
}

}  // namespace cellar
