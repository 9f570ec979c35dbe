#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cellar {

static_assert(std::endian::native == std::endian::little,
              "states are little-endian, and written as they stand in memory");

// Appends numbers and lists to a buffer, without padding.
class ByteWriter {
public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(&value, sizeof value);
    }
    // The length, u32, then the elements.
    template <class T>
    void put_list(std::span<const T> list) {
        put(static_cast<uint32_t>(list.size()));
        put_all(list);
    }
    template <class T>
    void put_all(std::span<const T> list) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(list.data(), list.size_bytes());
    }
    void put_text(std::string_view text) {
        put_list(std::span<const char>(text.data(), text.size()));
    }

    std::span<const std::byte> bytes() const { return bytes_; }

private:
    void append(const void* data, size_t size) {
        const auto* begin = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), begin, begin + size);
    }

    std::vector<std::byte> bytes_;
};

// Reads them back from bytes that may be anything. Once something is missing, `ok` is false and
// all that is read is zero or empty; nothing is allocated for more than there is.
class ByteReader {
public:
    explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

    template <class T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
        return value;
    }
    // How many elements follow, of at least `least` bytes each; 0 if there cannot be so many.
    uint32_t get_count(size_t least) {
        const auto n = get<uint32_t>();
        if (n > left_.size() / least) ok_ = false;
        return ok_ ? n : 0;
    }
    template <class T>
    std::vector<T> get_list() {
        return get_all<T>(get_count(sizeof(T)));
    }
    template <class T>
    std::vector<T> get_all(uint64_t n) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (n > left_.size() / sizeof(T)) ok_ = false;
        if (!ok_ || n == 0) return {};
        std::vector<T> list(static_cast<size_t>(n));
        take(list.size() * sizeof(T));
        std::memcpy(list.data(), taken_.data(), taken_.size());
        return list;
    }
    std::string get_text() {
        const std::vector<char> text = get_list<char>();
        return {text.begin(), text.end()};
    }

    bool ok() const { return ok_; }
    bool at_end() const { return ok_ && left_.empty(); }

private:
    bool take(size_t n) {
        ok_ = ok_ && n <= left_.size();
        if (!ok_) return false;
        taken_ = left_.first(n);
        left_ = left_.subspan(n);
        return true;
    }

    std::span<const std::byte> left_;
    std::span<const std::byte> taken_;
    bool ok_ = true;
};

}  // namespace cellar
