#include "state/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace cellar {
namespace {

// What was said stays private: states hold conversations.
constexpr mode_t kMode = S_IRUSR | S_IWUSR;

tl::unexpected<Error> refused(const std::string& path, const char* what) {
    return fail(Code::kIo, fmt::format("{}: cannot {} it: {}", path, what, std::strerror(errno)));
}

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }

private:
    int fd_;
};

class SystemFile : public Disk::File {
public:
    SystemFile(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    Result<void> write(std::span<const std::byte> bytes) override {
        while (!bytes.empty()) {
            const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return refused(path_, "write");
            bytes = bytes.subspan(static_cast<size_t>(n));
        }
        return {};
    }

    Result<void> sync() override {
        while (::fsync(fd_.get()) != 0)
            if (errno != EINTR) return refused(path_, "sync");
        return {};
    }

private:
    const std::string path_;
    const Descriptor fd_;
};

bool is_at(int fd, const std::string& path) {
    struct stat opened = {}, named = {};
    return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// A pipe, a device, or a file that has another name too, which emptying it would empty.
bool is_plain_file(int fd) {
    struct stat status = {};
    return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1;
}

class SystemDisk : public Disk {
public:
    // A lock tells a file that somebody writes from one that a crash has left behind.
    Result<std::unique_ptr<File>> create(const std::string& path) override {
        for (;;) {
            // Whatever stands there by that name: no link is followed, no pipe waited for.
            constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
            Descriptor fd(::open(path.c_str(), kFlags, kMode));
            if (fd.get() < 0) return refused(path, "create");
            if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
                if (errno == EWOULDBLOCK)
                    return fail(Code::kBusy, fmt::format("{}: somebody else writes it", path));
                return refused(path, "lock");
            }
            // Its writer may have given it its final name between our opening and locking it.
            if (!is_at(fd.get(), path)) continue;
            if (!is_plain_file(fd.get()))
                return fail(Code::kIo, fmt::format("{}: it is no file of a save's", path));
            if (::fchmod(fd.get(), kMode) != 0) return refused(path, "protect");
            if (::ftruncate(fd.get(), 0) != 0) return refused(path, "empty");
            return std::make_unique<SystemFile>(path, std::move(fd));
        }
    }

    Result<void> rename(const std::string& from, const std::string& to) override {
        if (::rename(from.c_str(), to.c_str()) != 0) return refused(to, "replace");
        return {};
    }

    Result<void> sync_folder_of(const std::string& path) override {
        std::string folder = std::filesystem::path(path).parent_path().string();
        if (folder.empty()) folder = ".";
        const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (fd.get() < 0) return refused(folder, "open");
        // Some file systems cannot sync a folder; then its names are as safe as they get.
        if (::fsync(fd.get()) != 0 && errno != EINVAL) return refused(folder, "sync");
        return {};
    }

    void remove(const std::string& path) override { ::unlink(path.c_str()); }
};

}  // namespace

Disk& system_disk() {
    static SystemDisk disk;
    return disk;
}

}  // namespace cellar
