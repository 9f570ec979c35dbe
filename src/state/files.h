#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "state/disk.h"
#include "state/sink.h"
#include "state/source.h"

namespace cellar {

// Writes a file beside its final place, PATH.part, and gives it its name once all of it is on disk:
// whatever happens meanwhile, PATH is the old file or the new one, whole. What a crash leaves is
// PATH.part, which the next save to PATH writes over. Only its owner may read it. A symbolic link
// is replaced, its target kept; what is there and no file is refused, and so is a PATH.part that is
// a link.
class FileSink : public Sink {
public:
    // Errors: kIo, kBusy while another save to `path` runs. Without `durable` nothing is synced: a
    // crash of the process still leaves a whole file, a crash of the machine may not.
    static Result<std::unique_ptr<FileSink>> create(const std::string& path,
                                                    Disk& disk = system_disk(),
                                                    bool durable = true);
    ~FileSink() override;

    Result<void> write(std::span<const std::byte> bytes) override;
    Result<void> finish() override;

private:
    FileSink(std::string path, Disk& disk, bool durable)
        : path_(std::move(path)), disk_(disk), durable_(durable) {}
    std::string part() const { return path_ + ".part"; }

    const std::string path_;
    Disk& disk_;
    const bool durable_;
    std::unique_ptr<Disk::File> file_;
    bool finished_ = false;  // the file has its name
};

// Reads a file from its beginning.
class FileSource : public Source {
public:
    // Errors: kIo with the system's reason, kBadFile if it is no regular file.
    static Result<std::unique_ptr<FileSource>> open(const std::string& path);
    ~FileSource() override;

    Result<size_t> read(std::span<std::byte> bytes) override;
    Result<void> skip(uint64_t n) override;
    std::optional<uint64_t> remaining() const override { return size_ - at_; }

private:
    FileSource(std::string path, int fd, uint64_t size)
        : path_(std::move(path)), fd_(fd), size_(size) {}

    const std::string path_;
    const int fd_;
    const uint64_t size_;  // when it was opened
    uint64_t at_ = 0;      // never beyond size_
};

}  // namespace cellar
