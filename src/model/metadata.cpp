#include "model/metadata.h"

#include <fmt/format.h>

#include <utility>

namespace cellar {

namespace {

template <class T>
tl::unexpected<Error> outside(const GgufFile& file, std::string_view key, T value, T low, T high) {
    return fail(Code::kBadFile, fmt::format("{}: key '{}' is {}, which lies outside {} to {}",
                                            file.path(), key, value, low, high));
}

}  // namespace

Result<std::optional<uint32_t>> find_count_in(const GgufFile& file, std::string_view key,
                                              uint32_t low, uint32_t high) {
    auto value = file.find_integer(key);
    if (!value) return pass(std::move(value));
    if (!*value) return std::nullopt;
    if (**value < low || **value > high) return outside<int64_t>(file, key, **value, low, high);
    return static_cast<uint32_t>(**value);
}

Result<uint32_t> count_in(const GgufFile& file, std::string_view key, uint32_t low, uint32_t high) {
    auto value = find_count_in(file, key, low, high);
    if (!value) return pass(std::move(value));
    if (*value) return **value;
    return fail(Code::kBadFile, fmt::format("{}: key '{}' is missing", file.path(), key));
}

Result<std::optional<std::vector<uint32_t>>> find_counts_in(const GgufFile& file,
                                                            std::string_view key, size_t n,
                                                            uint32_t low, uint32_t high) {
    auto values = file.find_ints_per_layer(key, n);
    if (!values) return pass(std::move(values));
    if (!*values) return std::nullopt;
    std::vector<uint32_t> counts;
    counts.reserve(n);
    for (const int64_t value : **values) {
        if (value < low || value > high) return outside<int64_t>(file, key, value, low, high);
        counts.push_back(static_cast<uint32_t>(value));
    }
    return counts;
}

Result<float> real_in(const GgufFile& file, std::string_view key, float low, float high,
                      float absent) {
    auto value = file.find_real(key);
    if (!value) return pass(std::move(value));
    if (!*value) return absent;
    // Written so that NaN is outside.
    if (!(**value >= double{low} && **value <= double{high}))
        return outside<double>(file, key, **value, low, high);
    return static_cast<float>(**value);
}

}  // namespace cellar
