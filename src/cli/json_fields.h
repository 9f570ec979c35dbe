#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace cellar::cli {

// The fields of a JSON object from outside. A field that is missing, of the wrong type or out of
// range is an error whose one sentence names its key; `find_` gives nothing for a missing one.
class JsonFields {
public:
    // `object` must be one, and outlive this.
    explicit JsonFields(const nlohmann::json& object) : object_(object) {}

    // Errors: a key that is not in `known`, so that a misspelt one is not passed over.
    Result<void> check_keys(std::span<const std::string_view> known) const;

    Result<int64_t> whole(std::string_view key, int64_t low, int64_t high) const;
    Result<int64_t> whole_or(std::string_view key, int64_t low, int64_t high,
                             int64_t missing) const;
    Result<double> real(std::string_view key, double low, double high) const;
    Result<bool> boolean_or(std::string_view key, bool missing) const;
    Result<std::string> string(std::string_view key) const;
    Result<std::string> string_or(std::string_view key, std::string_view missing) const;
    // A list that is there; its elements are the caller's to judge.
    Result<const nlohmann::json*> list(std::string_view key) const;

    bool has(std::string_view key) const { return object_.contains(key); }

    // Whether `value` is a whole number in [low, high], and which.
    static std::optional<int64_t> as_whole(const nlohmann::json& value, int64_t low, int64_t high);

private:
    Result<const nlohmann::json*> at(std::string_view key) const;

    const nlohmann::json& object_;
};

}  // namespace cellar::cli
