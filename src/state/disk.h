#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace cellar {

// What a file sink asks of the system: an interface, so that tests can fail each call, or lose what
// was not synced. Errors are kIo with the path and the system's reason, unless said otherwise.
class Disk {
public:
    // A file that is being written. Closed with its owner.
    class File {
    public:
        virtual ~File() = default;
        virtual Result<void> write(std::span<const std::byte> bytes) = 0;
        virtual Result<void> sync() = 0;  // on return its bytes survive a crash
    };

    virtual ~Disk() = default;

    // An empty file that nobody else writes until it is closed; what stood there is gone. Errors
    // besides: kBusy when somebody writes it.
    virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;

    // Gives a file another's name, at once: readers find one or the other.
    virtual Result<void> rename(const std::string& from, const std::string& to) = 0;

    // On return the names in the folder of `path` survive a crash.
    virtual Result<void> sync_folder_of(const std::string& path) = 0;

    // Best effort.
    virtual void remove(const std::string& path) = 0;
};

// The system's files. Stateless.
Disk& system_disk();

}  // namespace cellar
