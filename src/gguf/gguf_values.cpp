// Metadata as it is, whatever it means: to look at, and to compare.

#include <fmt/format.h>
#include <gguf.h>

#include <algorithm>
#include <cstring>

#include "gguf/gguf_check.h"
#include "gguf/gguf_file.h"
#include "gguf/printable.h"

namespace cellar {

namespace {

constexpr size_t kShownElements = 8;

// A key that is there: its elements, of which a scalar has one.
struct Elements {
    const gguf_context* context;
    int64_t id;
    bool is_array;
    gguf_type type;
    size_t count;

    Elements(const gguf_context* context_, std::string_view key)
        : context(context_),
          id(gguf_find_key(context_, std::string(key).c_str())),
          is_array(gguf_get_kv_type(context_, id) == GGUF_TYPE_ARRAY),
          type(is_array ? gguf_get_arr_type(context_, id) : gguf_get_kv_type(context_, id)),
          count(is_array ? gguf_get_arr_n(context_, id) : 1) {}

    std::string_view text(size_t i) const {
        return is_array ? gguf_get_arr_str(context, id, i) : gguf_get_val_str(context, id);
    }

    // Of anything but strings: ggml aborts when it is asked for theirs.
    const char* data() const {
        return static_cast<const char*>(is_array ? gguf_get_arr_data(context, id)
                                                 : gguf_get_val_data(context, id));
    }

    template <class T>
    T at(size_t i) const {
        T value;
        std::memcpy(&value, data() + i * sizeof(T), sizeof(T));
        return value;
    }

    std::string shown(size_t i) const {
        switch (type) {
            case GGUF_TYPE_STRING:
                return fmt::format("\"{}\"", printable(text(i)));
            case GGUF_TYPE_BOOL:
                return at<int8_t>(i) != 0 ? "true" : "false";
            case GGUF_TYPE_UINT8:
                return fmt::to_string(at<uint8_t>(i));
            case GGUF_TYPE_INT8:
                return fmt::to_string(int{at<int8_t>(i)});
            case GGUF_TYPE_UINT16:
                return fmt::to_string(at<uint16_t>(i));
            case GGUF_TYPE_INT16:
                return fmt::to_string(at<int16_t>(i));
            case GGUF_TYPE_UINT32:
                return fmt::to_string(at<uint32_t>(i));
            case GGUF_TYPE_INT32:
                return fmt::to_string(at<int32_t>(i));
            case GGUF_TYPE_UINT64:
                return fmt::to_string(at<uint64_t>(i));
            case GGUF_TYPE_INT64:
                return fmt::to_string(at<int64_t>(i));
            case GGUF_TYPE_FLOAT32:
                return fmt::to_string(at<float>(i));
            default:
                return fmt::to_string(at<double>(i));
        }
    }
};

void append_number(std::string& out, uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
        out.push_back(static_cast<char>((number >> shift) & 0xff));
}

}  // namespace

std::string_view type_name(const TensorInfo& tensor) {
    return ggml_type_name(tensor.type);
}

std::vector<std::string_view> GgufFile::keys() const {
    std::vector<std::string_view> keys;
    const int64_t n = gguf_get_n_kv(context_.get());
    for (int64_t i = 0; i < n; i++)
        keys.emplace_back(gguf_get_key(context_.get(), i));
    return keys;
}

std::string GgufFile::shown(std::string_view key) const {
    const Elements elements(context_.get(), key);
    if (!elements.is_array) return elements.shown(0);
    std::string list;
    for (size_t i = 0; i < std::min(elements.count, kShownElements); i++)
        list += (i > 0 ? ", " : "") + elements.shown(i);
    return fmt::format("{} {}: [{}{}]", elements.count, gguf_type_name(elements.type), list,
                       elements.count > kShownElements ? ", ..." : "");
}

std::string GgufFile::encoded(std::string_view key) const {
    const Elements elements(context_.get(), key);
    std::string out;
    append_number(out, elements.is_array ? 1 : 0);
    append_number(out, static_cast<uint64_t>(elements.type));
    append_number(out, elements.count);
    if (elements.type != GGUF_TYPE_STRING) {
        if (elements.count > 0)
            out.append(elements.data(), elements.count * scalar_bytes(elements.type));
        return out;
    }
    for (size_t i = 0; i < elements.count; i++) {
        append_number(out, elements.text(i).size());
        out += elements.text(i);
    }
    return out;
}

}  // namespace cellar
