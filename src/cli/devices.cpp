#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"
#include "model/offload.h"

namespace cellar::cli {

namespace {

std::string as_json(const std::vector<DeviceInfo>& found) {
    auto list = nlohmann::ordered_json::array();
    for (const DeviceInfo& device : found) {
        list.push_back({{"name", device.name},
                        {"description", device.description},
                        {"free_bytes", device.free_bytes},
                        {"total_bytes", device.total_bytes}});
    }
    return nlohmann::ordered_json{{"devices", list}}.dump(-1, ' ', false,
                                                          nlohmann::json::error_handler_t::replace);
}

std::string as_text(const std::vector<DeviceInfo>& found) {
    if (found.empty()) {
        return "There is no device beside the CPU: ggml was built for none, or finds none here.";
    }
    std::string lines;
    for (const DeviceInfo& device : found) {
        lines += fmt::format("{}{}: {}, {} of {} MiB free", lines.empty() ? "" : "\n", device.name,
                             device.description, device.free_bytes >> 20, device.total_bytes >> 20);
    }
    return lines;
}

}  // namespace

Command add_devices(CLI::App& app) {
    auto json = std::make_shared<bool>(false);
    CLI::App* command = app.add_subcommand(
        "devices", "Lists the devices beside the CPU that --offload can put layers on.");
    command->add_flag("--json", *json, "print one JSON object");
    command->footer("Example:\n  cellar devices");
    return {command, [json] {
                const std::vector<DeviceInfo> found = devices();
                return print((*json ? as_json(found) : as_text(found)) + "\n");
            }};
}

}  // namespace cellar::cli
