#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cellar::testing {

// The bytes of `value` in memory order.
template <class T>
std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A GGUF string: its length, then its bytes.
inline std::string gguf_string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
}

// A directory entry's name, dimensions and type, for patches.
inline std::string tensor_entry(std::string_view name, std::initializer_list<int64_t> ne,
                                int32_t type) {
    std::string bytes = gguf_string(name) + raw(static_cast<uint32_t>(ne.size()));
    for (const int64_t n : ne)
        bytes += raw(n);
    return bytes + raw(type);
}

// `bytes` with the first `from` overwritten by `to`, which is as long.
inline std::string patched(std::string bytes, std::string_view from, std::string_view to) {
    const size_t place = bytes.find(from);
    if (place == bytes.npos || from.size() != to.size()) throw std::runtime_error("no such patch");
    return bytes.replace(place, from.size(), to);
}

// Writes GGUF files byte by byte, damaged ones included: nothing is checked, every field can be
// given a wrong value, and the places of all length fields are known.
class GgufBytes {
public:
    // The numbers of GGUF's types (see gguf.h).
    enum Type : uint32_t {
        kU8,
        kI8,
        kU16,
        kI16,
        kU32,
        kI32,
        kF32,
        kBool,
        kString,
        kArray,
        kU64,
        kI64,
        kF64
    };

    template <class T>
    GgufBytes& scalar(std::string_view name, Type type, T value) {
        begin_key(name, type);
        body_ += raw(value);
        return *this;
    }

    GgufBytes& string(std::string_view name, std::string_view text) {
        begin_key(name, kString);
        mark();
        body_ += gguf_string(text);
        return *this;
    }

    template <class T>
    GgufBytes& array(std::string_view name, Type type, std::initializer_list<T> values) {
        begin_array(name, type, values.size());
        for (const T value : values)
            body_ += raw(value);
        return *this;
    }

    GgufBytes& strings(std::string_view name, std::initializer_list<std::string_view> texts) {
        begin_array(name, kString, texts.size());
        for (const std::string_view text : texts) {
            mark();
            body_ += gguf_string(text);
        }
        return *this;
    }

    // `type` is a ggml_type's number; `offset` counts from the beginning of the data.
    GgufBytes& tensor(std::string_view name, std::initializer_list<int64_t> ne, int32_t type,
                      uint64_t offset) {
        ++n_tensors_;
        mark();
        body_ += gguf_string(name) + raw(static_cast<uint32_t>(ne.size()));
        for (const int64_t n : ne) {
            mark();
            body_ += raw(n);
        }
        body_ += raw(type) + raw(offset);
        return *this;
    }

    // Header, keys and tensors, padded, then `data`.
    std::string bytes(std::string_view data = {}, size_t alignment = 32,
                      uint32_t version = 3) const {
        std::string all = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_keys_) + body_;
        if (n_tensors_ > 0) all.resize((all.size() + alignment - 1) / alignment * alignment);
        return all.append(data);
    }

    // Where in bytes() the 8-byte counts and lengths lie.
    const std::vector<size_t>& lengths() const { return lengths_; }

private:
    static constexpr size_t kHeader = 24;

    void mark() { lengths_.push_back(kHeader + body_.size()); }

    void begin_key(std::string_view name, Type type) {
        ++n_keys_;
        mark();
        body_ += gguf_string(name) + raw<uint32_t>(type);
    }

    void begin_array(std::string_view name, Type type, uint64_t count) {
        begin_key(name, kArray);
        body_ += raw<uint32_t>(type);
        mark();
        body_ += raw(count);
    }

    std::string body_;
    uint64_t n_tensors_ = 0;
    uint64_t n_keys_ = 0;
    std::vector<size_t> lengths_{8, 16};
};

}  // namespace cellar::testing
