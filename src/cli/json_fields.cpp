#include "cli/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace cellar::cli {

namespace {

tl::unexpected<Error> wrong(std::string_view key, const std::string& must) {
    return fail(Code::kInvalidArgument, fmt::format("\"{}\" must be {}", key, must));
}

}  // namespace

Result<void> JsonFields::check_keys(std::span<const std::string_view> known) const {
    for (const auto& [key, value] : object_.items()) {
        if (std::find(known.begin(), known.end(), key) == known.end()) {
            return fail(Code::kInvalidArgument,
                        fmt::format("\"{}\" is no key of this operation; it has {}", key,
                                    fmt::join(known, ", ")));
        }
    }
    return {};
}

Result<int64_t> JsonFields::whole(std::string_view key, int64_t low, int64_t high) const {
    auto value = at(key);
    if (!value) {
        return pass(std::move(value));
    }
    const std::optional<int64_t> number = as_whole(**value, low, high);
    if (!number) {
        return wrong(key, fmt::format("a whole number from {} to {}", low, high));
    }
    return *number;
}

Result<int64_t> JsonFields::whole_or(std::string_view key, int64_t low, int64_t high,
                                     int64_t missing) const {
    return has(key) ? whole(key, low, high) : missing;
}

Result<double> JsonFields::real(std::string_view key, double low, double high) const {
    auto value = at(key);
    if (!value) {
        return pass(std::move(value));
    }
    const double number = (*value)->is_number() ? (*value)->get<double>() : low - 1;
    if (number < low || number > high) {
        return wrong(key, fmt::format("a number from {} to {}", low, high));
    }
    return number;
}

Result<bool> JsonFields::boolean_or(std::string_view key, bool missing) const {
    if (!has(key)) {
        return missing;
    }
    const nlohmann::json& value = object_[key];
    if (!value.is_boolean()) {
        return wrong(key, "true or false");
    }
    return value.get<bool>();
}

Result<std::string> JsonFields::string(std::string_view key) const {
    auto value = at(key);
    if (!value) {
        return pass(std::move(value));
    }
    if (!(*value)->is_string()) {
        return wrong(key, "a string");
    }
    return (*value)->get<std::string>();
}

Result<std::string> JsonFields::string_or(std::string_view key, std::string_view missing) const {
    return has(key) ? string(key) : std::string(missing);
}

Result<const nlohmann::json*> JsonFields::list(std::string_view key) const {
    auto value = at(key);
    if (value && !(*value)->is_array()) {
        return wrong(key, "a list");
    }
    return value;
}

std::optional<int64_t> JsonFields::as_whole(const nlohmann::json& value, int64_t low,
                                            int64_t high) {
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<uint64_t>() > kMax)) {
        return std::nullopt;
    }
    const auto number = value.get<int64_t>();
    if (number < low || number > high) {
        return std::nullopt;
    }
    return number;
}

Result<const nlohmann::json*> JsonFields::at(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) {
        return fail(Code::kInvalidArgument, fmt::format("\"{}\" is missing", key));
    }
    return &*it;
}

}  // namespace cellar::cli
