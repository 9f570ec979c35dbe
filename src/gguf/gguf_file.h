#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "gguf/mapped_file.h"

struct gguf_context;

namespace cellar {

// One entry of a GGUF file's tensor directory. [offset, offset + bytes) lies inside the file.
struct TensorInfo {
    std::string_view name;  // borrowed from the GgufFile
    ggml_type type = GGML_TYPE_F32;
    std::array<int64_t, 4> ne{1, 1, 1, 1};  // innermost first; 1 beyond the tensor's dimensions
    uint64_t offset = 0;                    // from the beginning of the file
    uint64_t bytes = 0;
};

// "f32", "q4_1", ...
std::string_view type_name(const TensorInfo& tensor);

// A GGUF file, read as hostile input: its metadata and where its tensors lie, not their data.
//
// `open` walks every byte of the metadata before ggml's parser sees it, so a damaged file gives one
// sentence, and no length field is believed beyond the bytes that are there. Afterwards nothing in
// the file can make an accessor crash: a wrong type or a number out of range is an error that names
// the key. Views that are handed out live as long as the GgufFile; moving it keeps them valid.
//
// Each accessor comes in two forms: `integer(key)` needs the key, and its absence is kBadFile;
// `find_integer(key)` gives nullopt for it. A value of the wrong type is kBadFile in both.
class GgufFile {
public:
    // O(metadata) time and memory. Errors: kIo if the system refuses to open or read the file,
    // kBadFile if it is not a little-endian GGUF of version 2 or 3 that is whole and consistent.
    static Result<GgufFile> open(const std::filesystem::path& path);

    GgufFile(GgufFile&&) noexcept;
    GgufFile& operator=(GgufFile&&) noexcept;
    ~GgufFile();

    bool has(std::string_view key) const;

    // All keys of the metadata, in the file's order.
    std::vector<std::string_view> keys() const;
    // A key's value for people, on one line: arrays by length and first elements, long strings cut.
    // The key is there.
    std::string shown(std::string_view key) const;
    // A key's type and value as bytes that no other value has: what digests are made of. The key is
    // there. O(value).
    std::string encoded(std::string_view key) const;

    // A string, up to its first NUL byte (ggml hands strings out as C strings).
    Result<std::string_view> string(std::string_view key) const;
    Result<std::optional<std::string_view>> find_string(std::string_view key) const;

    // An integer of any width and sign, not a bool; u64 beyond INT64_MAX is refused.
    Result<int64_t> integer(std::string_view key) const;
    Result<std::optional<int64_t>> find_integer(std::string_view key) const;

    // A float of either width or any integer. May be NaN or infinite: the caller judges.
    Result<double> real(std::string_view key) const;
    Result<std::optional<double>> find_real(std::string_view key) const;

    Result<bool> boolean(std::string_view key) const;
    Result<std::optional<bool>> find_boolean(std::string_view key) const;

    // Arrays. `ints` takes any integer type whose values fit, and bools as 0 and 1; `reals` takes
    // floats of either width. A scalar is not an array of one.
    Result<std::vector<std::string_view>> strings(std::string_view key) const;
    Result<std::optional<std::vector<std::string_view>>> find_strings(std::string_view key) const;
    Result<std::vector<int32_t>> ints(std::string_view key) const;
    Result<std::optional<std::vector<int32_t>>> find_ints(std::string_view key) const;
    Result<std::vector<float>> reals(std::string_view key) const;
    Result<std::optional<std::vector<float>>> find_reals(std::string_view key) const;

    // A value for each of `n` layers: an array of exactly n, or one scalar that holds for all.
    Result<std::vector<int32_t>> ints_per_layer(std::string_view key, size_t n) const;
    Result<std::optional<std::vector<int32_t>>> find_ints_per_layer(std::string_view key,
                                                                    size_t n) const;

    // The tensor directory, in the file's order. Null if there is no tensor of that name.
    std::span<const TensorInfo> tensors() const { return tensors_; }
    const TensorInfo* find_tensor(std::string_view name) const;

    // The path as it was given to `open`: errors begin with it.
    const std::string& path() const { return path_; }

    // The file itself. Whoever points into it keeps the mapping.
    const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

private:
    struct FreeContext {
        void operator()(gguf_context* context) const;
    };
    using Context = std::unique_ptr<gguf_context, FreeContext>;

    GgufFile(std::string path, std::shared_ptr<const MappedFile> mapping, Context context);

    void read_directory(ggml_context& made);

    std::string path_;
    std::shared_ptr<const MappedFile> mapping_;
    Context context_;                                       // ggml's copy of the metadata
    std::vector<TensorInfo> tensors_;                       // names point into context_
    std::unordered_map<std::string_view, size_t> by_name_;  // index into tensors_
};

}  // namespace cellar
