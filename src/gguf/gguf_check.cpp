#include "gguf/gguf_check.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gguf.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gguf/printable.h"

namespace cellar {

namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in its own byte order");

// Llama 405B has 1,138 tensors; files with one tensor for each expert reached 13,000.
// ggml 0.15 compares every name with every other: at this limit, a second.
constexpr uint64_t kMaxEntries = 16384;
constexpr uint64_t kMaxElements = uint64_t{1} << 24;    // the largest vocabularies have 2^18 tokens
constexpr uint64_t kMaxMetadata = uint64_t{256} << 20;  // the largest vocabularies take 20 MiB

// `a` rounded up to a power of two. Both lie far below 2^63 here.
constexpr uint64_t round_up(uint64_t a, uint64_t power) {
    return (a + power - 1) & ~(power - 1);
}

// One pass over the metadata. Each step returns false once it has put a sentence into `problem_`.
class Walker {
public:
    explicit Walker(std::span<const std::byte> file) : file_(file) {}

    Result<void> run() {
        if (header() && keys() && directory() && data()) return {};
        return fail(Code::kBadFile, std::move(problem_));
    }

private:
    struct Extent {
        std::string_view name;
        uint64_t begin;  // from the beginning of the data
        uint64_t bytes;
    };

    template <class... Args>
    bool refuse(fmt::format_string<Args...> format, Args&&... args) {
        problem_ = fmt::format(format, std::forward<Args>(args)...);
        return false;
    }

    // What is being read, for the sentence.
    std::string where() const {
        if (!part_name_.empty()) return fmt::format("{} '{}'", part_, printable(part_name_));
        return part_index_ ? fmt::format("{} {}", part_, *part_index_) : std::string(part_);
    }

    void enter(std::string_view part, std::optional<uint64_t> index = std::nullopt) {
        part_ = part;
        part_name_ = {};
        part_index_ = index;
    }

    uint64_t left() const { return file_.size() - at_; }

    // Steps over `count` elements of `size` bytes that begin here.
    bool skip(uint64_t count, uint64_t size) {
        if (count > left() / size)
            return refuse("{} needs {} x {} bytes at byte {}, but the file ends {} bytes later",
                          where(), count, size, at_, left());
        at_ += count * size;
        if (at_ > kMaxMetadata)
            return refuse("{} lies beyond the first {} bytes, where all metadata must be", where(),
                          kMaxMetadata);
        return true;
    }

    template <class T>
    bool read(T& value) {
        const uint64_t begin = at_;
        if (!skip(1, sizeof(T))) return false;
        std::memcpy(&value, file_.data() + begin, sizeof(T));
        return true;
    }

    bool read_string(std::string_view& value) {
        uint64_t length = 0;
        if (!read(length)) return false;
        const uint64_t begin = at_;
        if (!skip(length, 1)) return false;
        value = {reinterpret_cast<const char*>(file_.data() + begin), length};
        return true;
    }

    bool read_name(std::string_view& name, std::unordered_set<std::string_view>& seen) {
        if (!read_string(name)) return false;
        if (name.empty()) return refuse("{} has an empty name", where());
        if (name.find('\0') != name.npos) return refuse("{} has a NUL byte in its name", where());
        if (!seen.insert(name).second)
            return refuse("{} is there twice: '{}'", where(), printable(name));
        part_name_ = name;
        return true;
    }

    bool header() {
        enter("the header");
        std::array<char, 4> magic{};
        uint32_t version = 0;
        if (file_.size() < magic.size() || !read(magic) ||
            std::memcmp(magic.data(), "GGUF", 4) != 0)
            return refuse("this is not a GGUF file: it does not begin with the letters GGUF");
        if (!read(version)) return false;
        if (version != 0 && (version & 0xffff) == 0)
            return refuse("this GGUF file is big-endian (its version reads as {:#x})", version);
        if (version < 2 || version > 3)
            return refuse("this is GGUF version {}; versions 2 and 3 can be read", version);
        return read(n_tensors_) && read(n_keys_) && count_is_sane("tensors", n_tensors_) &&
               count_is_sane("keys", n_keys_);
    }

    bool count_is_sane(std::string_view what, uint64_t count) {
        if (count <= kMaxEntries) return true;
        return refuse("the header announces {} {}; at most {} are believed", count, what,
                      kMaxEntries);
    }

    bool keys() {
        std::unordered_set<std::string_view> seen;
        for (uint64_t i = 0; i < n_keys_; ++i) {
            enter("key", i);
            std::string_view name;
            uint32_t type = 0;
            if (!read_name(name, seen) || !read(type)) return false;
            if (!(name == GGUF_KEY_GENERAL_ALIGNMENT ? alignment(type) : value(type))) return false;
        }
        return true;
    }

    bool alignment(uint32_t type) {
        uint32_t value = 0;
        if (type != GGUF_TYPE_UINT32) return refuse("{} has type {}, not u32", where(), type);
        if (!read(value)) return false;
        if (!std::has_single_bit(value))
            return refuse("{} is {}, which is not a power of two", where(), value);
        alignment_ = value;
        return true;
    }

    bool value(uint32_t type) {
        uint64_t count = 1;
        if (type == GGUF_TYPE_ARRAY) {
            if (!read(type) || !read(count)) return false;
            if (count > kMaxElements)
                return refuse("{} announces an array of {} elements; at most {} are believed",
                              where(), count, kMaxElements);
        }
        if (type == GGUF_TYPE_STRING) return strings(count);
        if (scalar_bytes(type) == 0) return refuse("{} has the unknown type {}", where(), type);
        return skip(count, scalar_bytes(type));
    }

    bool strings(uint64_t count) {
        std::string_view ignored;
        for (uint64_t i = 0; i < count; ++i) {
            if (!read_string(ignored)) return false;
        }
        return true;
    }

    bool directory() {
        std::unordered_set<std::string_view> seen;
        uint64_t end = 0;  // of the tensors so far, padded
        for (uint64_t i = 0; i < n_tensors_; ++i) {
            enter("tensor", i);
            Extent extent{};
            if (!read_name(extent.name, seen)) return false;
            if (extent.name.size() >= GGML_MAX_NAME)
                return refuse("{} has a name of {} bytes; at most {} are possible", where(),
                              extent.name.size(), GGML_MAX_NAME - 1);
            if (!shape(extent.bytes) || !read(extent.begin)) return false;
            if (extent.begin != end)
                return refuse("{} begins at byte {} of the data, but {} follows from those before",
                              where(), extent.begin, end);
            end = round_up(end + extent.bytes, alignment_);
            extents_.push_back(extent);
        }
        return true;
    }

    // Reads dimensions and type, and gives the tensor's size: at most the file's.
    bool shape(uint64_t& bytes) {
        uint32_t n_dims = 0;
        if (!read(n_dims)) return false;
        if (n_dims > GGML_MAX_DIMS)
            return refuse("{} has {} dimensions; at most {} are possible", where(), n_dims,
                          GGML_MAX_DIMS);
        int64_t row = 1;
        int64_t elements = 1;
        for (uint32_t i = 0; i < n_dims; ++i) {
            int64_t ne = 0;
            if (!read(ne)) return false;
            if (ne < 1) return refuse("{} has {} elements in dimension {}", where(), ne, i);
            if (__builtin_mul_overflow(elements, ne, &elements))
                return refuse("{} has more than 2^63 elements", where());
            if (i == 0) row = ne;
        }
        return size(row, elements, bytes);
    }

    bool size(int64_t row, int64_t elements, uint64_t& bytes) {
        int32_t number = 0;
        if (!read(number)) return false;
        const bool in_range = number >= 0 && number < GGML_TYPE_COUNT;
        const auto type = static_cast<ggml_type>(in_range ? number : 0);
        // Numbers of types that ggml has dropped have blocks of 0 elements.
        const int64_t block = in_range ? ggml_blck_size(type) : 0;
        if (block < 1 || ggml_type_size(type) == 0)
            return refuse("{} has type {}, which this build of ggml does not know", where(),
                          number);
        if (row % block != 0)
            return refuse("{} has rows of {} elements, which {} blocks of {} do not divide",
                          where(), row, ggml_type_name(type), block);
        const auto blocks = static_cast<uint64_t>(elements / block);
        if (blocks > file_.size() / ggml_type_size(type))
            return refuse("{} would have {} blocks of {} bytes, but the file has {} bytes", where(),
                          blocks, ggml_type_size(type), file_.size());
        bytes = blocks * ggml_type_size(type);
        return true;
    }

    // With the directory's end known, the data's beginning is, and so each tensor's place.
    bool data() {
        if (extents_.empty()) return true;
        const uint64_t begin = round_up(at_, alignment_);
        for (const Extent& extent : extents_) {
            const uint64_t end = begin + extent.begin + extent.bytes;
            if (end <= file_.size()) continue;
            return refuse("tensor '{}' would end at byte {}, but the file has {} bytes",
                          printable(extent.name), end, file_.size());
        }
        return true;
    }

    const std::span<const std::byte> file_;
    uint64_t at_ = 0;
    uint64_t n_tensors_ = 0;
    uint64_t n_keys_ = 0;
    uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
    std::vector<Extent> extents_;

    std::string_view part_;
    std::string_view part_name_;
    std::optional<uint64_t> part_index_;
    std::string problem_;
};

}  // namespace

uint64_t scalar_bytes(uint32_t type) {
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL:
            return 1;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16:
            return 2;
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_FLOAT32:
            return 4;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
        case GGUF_TYPE_FLOAT64:
            return 8;
        default:
            return 0;
    }
}

Result<void> check_gguf(std::span<const std::byte> file) {
    return Walker(file).run();
}

}  // namespace cellar
