#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cellar::testing {

// A file of its own under the system's temporary folder, removed with the object.
class ScratchFile {
public:
    explicit ScratchFile(std::string_view bytes) {
        std::string name = (std::filesystem::temp_directory_path() / "cellar-XXXXXX").string();
        const int fd = ::mkstemp(name.data());
        if (fd < 0) throw std::runtime_error("cannot create " + name);
        ::close(fd);
        path_ = name;
        write(bytes);
    }
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;
    ~ScratchFile() { std::filesystem::remove(path_); }

    // Replaces the content.
    void write(std::string_view bytes) const {
        std::ofstream(path_, std::ios::binary | std::ios::trunc)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }

    // Replaces the bytes at `offset`; the file's size stays.
    void patch(size_t offset, std::string_view bytes) const {
        std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(offset));
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }

    void truncate(size_t size) const { std::filesystem::resize_file(path_, size); }

    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

// A whole file as a string.
inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path.string());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace cellar::testing
