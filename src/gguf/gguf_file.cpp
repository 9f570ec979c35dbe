#include "gguf/gguf_file.h"

#include <fmt/format.h>
#include <gguf.h>

#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "gguf/gguf_check.h"

namespace cellar {

namespace {

struct FreeTensors {
    void operator()(ggml_context* context) const { ggml_free(context); }
};

template <class T>
T load(const void* base, size_t index) {
    T value;
    std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof(T));
    return value;
}

// Element `index` of `base`, or nullopt if it is a u64 beyond INT64_MAX. The type is an integer's.
std::optional<int64_t> load_integer(gguf_type type, const void* base, size_t index) {
    switch (type) {
        case GGUF_TYPE_UINT8:
            return load<uint8_t>(base, index);
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL:
            return load<int8_t>(base, index);
        case GGUF_TYPE_UINT16:
            return load<uint16_t>(base, index);
        case GGUF_TYPE_INT16:
            return load<int16_t>(base, index);
        case GGUF_TYPE_UINT32:
            return load<uint32_t>(base, index);
        case GGUF_TYPE_INT32:
            return load<int32_t>(base, index);
        case GGUF_TYPE_INT64:
            return load<int64_t>(base, index);
        default: {
            const auto value = load<uint64_t>(base, index);
            if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
            return static_cast<int64_t>(value);
        }
    }
}

bool is_integer(gguf_type type) {
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16:
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
            return true;
        default:
            return false;
    }
}

bool is_real(gguf_type type) {
    return type == GGUF_TYPE_FLOAT32 || type == GGUF_TYPE_FLOAT64;
}

double load_real(gguf_type type, const void* base, size_t index) {
    return type == GGUF_TYPE_FLOAT32 ? load<float>(base, index) : load<double>(base, index);
}

// A key that is there, with what the accessors ask first.
struct Value {
    const gguf_context* context;
    std::string_view path;
    std::string_view key;
    int64_t id;
    gguf_type type;  // of the value, or of the array's elements
    bool is_array;
    size_t count;      // 1 for a scalar
    const void* data;  // null for strings

    std::string kind() const {
        const char* name = gguf_type_name(type);
        return is_array ? fmt::format("an array of {} {}", count, name) : fmt::format("a {}", name);
    }

    tl::unexpected<Error> not_a(std::string_view expected) const {
        return fail(Code::kBadFile, fmt::format("{}: key '{}' is {} where {} is expected", path,
                                                key, kind(), expected));
    }

    tl::unexpected<Error> out_of_range(size_t index) const {
        return fail(Code::kBadFile,
                    fmt::format("{}: element {} of key '{}' is out of range", path, index, key));
    }

    Result<int32_t> int32(size_t index) const {
        const auto value = load_integer(type, data, index);
        if (!value || *value < std::numeric_limits<int32_t>::min() ||
            *value > std::numeric_limits<int32_t>::max())
            return out_of_range(index);
        return static_cast<int32_t>(*value);
    }
};

std::optional<Value> find_value(const gguf_context* context, std::string_view path,
                                std::string_view key) {
    const int64_t id = gguf_find_key(context, std::string(key).c_str());
    if (id < 0) return std::nullopt;
    Value value{context, path, key, id, gguf_get_kv_type(context, id), false, 1, nullptr};
    value.is_array = value.type == GGUF_TYPE_ARRAY;
    if (value.is_array) {
        value.type = gguf_get_arr_type(context, id);
        value.count = gguf_get_arr_n(context, id);
    }
    // ggml aborts when it is asked for the bytes of strings.
    if (value.type != GGUF_TYPE_STRING)
        value.data =
            value.is_array ? gguf_get_arr_data(context, id) : gguf_get_val_data(context, id);
    return value;
}

Result<std::vector<int32_t>> load_ints(const Value& value) {
    std::vector<int32_t> ints;
    ints.reserve(value.count);
    for (size_t i = 0; i < value.count; ++i) {
        auto element = value.int32(i);
        if (!element) return pass(std::move(element));
        ints.push_back(*element);
    }
    return ints;
}

// The required form of an accessor from its optional one.
template <class T>
Result<T> required(Result<std::optional<T>>&& found, std::string_view path, std::string_view key) {
    if (!found) return pass(std::move(found));
    if (!*found) return fail(Code::kBadFile, fmt::format("{}: key '{}' is missing", path, key));
    return std::move(**found);
}

}  // namespace

void GgufFile::FreeContext::operator()(gguf_context* context) const {
    gguf_free(context);
}

GgufFile::GgufFile(std::string path, std::shared_ptr<const MappedFile> mapping, Context context)
    : path_(std::move(path)), mapping_(std::move(mapping)), context_(std::move(context)) {
}

GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) try {
    auto mapping = MappedFile::open(path);
    if (!mapping) return pass(std::move(mapping));
    const auto bytes = (*mapping)->bytes();
    if (auto checked = check_gguf(bytes); !checked) {
        Error& error = checked.error();
        return fail(error.code, fmt::format("{}: {}", path.string(), error.message));
    }

    // Dimensions come through tensors that ggml makes: `gguf_get_tensor_ne` is newer than 0.15.
    ggml_context* made = nullptr;
    const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/&made};
    Context context(gguf_init_from_buffer(bytes.data(), bytes.size(), params));
    const std::unique_ptr<ggml_context, FreeTensors> tensors(made);
    if (!context || !tensors)
        return fail(Code::kBadFile, fmt::format("{}: ggml cannot read this file", path.string()));

    GgufFile file(path.string(), std::move(*mapping), std::move(context));
    file.read_directory(*tensors);
    return file;
} catch (const std::bad_alloc&) {
    return fail(Code::kBackend, fmt::format("{}: no memory for the metadata", path.string()));
}

void GgufFile::read_directory(ggml_context& made) {
    const auto count = static_cast<size_t>(gguf_get_n_tensors(context_.get()));
    const uint64_t data = gguf_get_data_offset(context_.get());
    tensors_.reserve(count);
    by_name_.reserve(count);
    ggml_tensor* tensor = ggml_get_first_tensor(&made);
    for (size_t i = 0; i < count; ++i, tensor = ggml_get_next_tensor(&made, tensor)) {
        const auto id = static_cast<int64_t>(i);
        TensorInfo info;
        info.name = gguf_get_tensor_name(context_.get(), id);
        info.type = tensor->type;
        info.ne = {tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]};
        info.offset = data + gguf_get_tensor_offset(context_.get(), id);
        info.bytes = gguf_get_tensor_size(context_.get(), id);
        by_name_.emplace(info.name, i);
        tensors_.push_back(info);
    }
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

bool GgufFile::has(std::string_view key) const {
    return gguf_find_key(context_.get(), std::string(key).c_str()) >= 0;
}

Result<std::optional<std::string_view>> GgufFile::find_string(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (value->is_array || value->type != GGUF_TYPE_STRING) return value->not_a("a string");
    return gguf_get_val_str(context_.get(), value->id);
}

Result<std::optional<int64_t>> GgufFile::find_integer(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (value->is_array || !is_integer(value->type)) return value->not_a("an integer");
    const auto integer = load_integer(value->type, value->data, 0);
    if (!integer) return value->out_of_range(0);
    return integer;
}

Result<std::optional<double>> GgufFile::find_real(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (!value->is_array && is_real(value->type)) return load_real(value->type, value->data, 0);
    if (value->is_array || !is_integer(value->type)) return value->not_a("a number");
    const auto integer = load_integer(value->type, value->data, 0);
    if (!integer) return value->out_of_range(0);
    return static_cast<double>(*integer);
}

Result<std::optional<bool>> GgufFile::find_boolean(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (value->is_array || value->type != GGUF_TYPE_BOOL) return value->not_a("a bool");
    return load<int8_t>(value->data, 0) != 0;
}

Result<std::optional<std::vector<std::string_view>>> GgufFile::find_strings(
    std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (!value->is_array || value->type != GGUF_TYPE_STRING)
        return value->not_a("an array of strings");
    std::vector<std::string_view> strings(value->count);
    for (size_t i = 0; i < strings.size(); ++i) {
        strings[i] = gguf_get_arr_str(context_.get(), value->id, i);
    }
    return strings;
}

Result<std::optional<std::vector<int32_t>>> GgufFile::find_ints(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (!value->is_array || !(is_integer(value->type) || value->type == GGUF_TYPE_BOOL))
        return value->not_a("an array of integers");
    return load_ints(*value);
}

Result<std::optional<std::vector<float>>> GgufFile::find_reals(std::string_view key) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (!value->is_array || !is_real(value->type)) return value->not_a("an array of floats");
    std::vector<float> reals(value->count);
    for (size_t i = 0; i < reals.size(); ++i) {
        reals[i] = static_cast<float>(load_real(value->type, value->data, i));
    }
    return reals;
}

Result<std::optional<std::vector<int32_t>>> GgufFile::find_ints_per_layer(std::string_view key,
                                                                          size_t n) const {
    const auto value = find_value(context_.get(), path_, key);
    if (!value) return std::nullopt;
    if (!is_integer(value->type) && value->type != GGUF_TYPE_BOOL)
        return value->not_a("an integer, or an array of them,");
    if (value->is_array && value->count != n)
        return value->not_a(fmt::format("an integer, or an array of {},", n));
    auto ints = load_ints(*value);
    if (!ints) return pass(std::move(ints));
    if (!value->is_array) ints->resize(n, ints->front());
    return std::move(*ints);
}

Result<std::string_view> GgufFile::string(std::string_view key) const {
    return required(find_string(key), path_, key);
}

Result<int64_t> GgufFile::integer(std::string_view key) const {
    return required(find_integer(key), path_, key);
}

Result<double> GgufFile::real(std::string_view key) const {
    return required(find_real(key), path_, key);
}

Result<bool> GgufFile::boolean(std::string_view key) const {
    return required(find_boolean(key), path_, key);
}

Result<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
    return required(find_strings(key), path_, key);
}

Result<std::vector<int32_t>> GgufFile::ints(std::string_view key) const {
    return required(find_ints(key), path_, key);
}

Result<std::vector<float>> GgufFile::reals(std::string_view key) const {
    return required(find_reals(key), path_, key);
}

Result<std::vector<int32_t>> GgufFile::ints_per_layer(std::string_view key, size_t n) const {
    return required(find_ints_per_layer(key, n), path_, key);
}

}  // namespace cellar
