#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace cellar::cli {

namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr int64_t kMaxWhole = std::numeric_limits<int32_t>::max();

// All of `text` as a number between the bounds; NaN is between none.
template <class T>
std::optional<T> parse(const std::string& text, T low, T high) {
    T number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || !(low <= number && number <= high)) {
        return std::nullopt;
    }
    return number;
}

template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T low, T high,
                        const std::string& kind, const std::string& help,
                        std::function<void(T)> set) {
    const std::string shown = name.substr(0, name.find(','));
    const auto take = [=](const std::string& text) {
        const std::optional<T> number = parse(text, low, high);
        if (!number) {
            throw CLI::ValidationError(
                fmt::format("{} takes {} from {} to {}, not '{}'", shown, kind, low, high, text));
        }
        set(*number);
    };
    return app.add_option_function<std::string>(name, take, help)->type_name("N");
}

void add_kv_type(CLI::App& app, const std::string& name, const std::string& help, KvType& type) {
    const auto take = [name, &type](const std::string& text) {
        const std::optional<KvType> parsed = parse_kv_type(text);
        if (!parsed) {
            throw CLI::ValidationError(
                fmt::format("{} takes one of {}, not '{}'", name, kv_type_names(), text));
        }
        type = *parsed;
    };
    app.add_option_function<std::string>(name, take, help)->type_name("TYPE")->default_str("f16");
}

// An option that takes one of a few words.
template <class T>
void add_choice(CLI::App& app, const std::string& name, const std::string& help,
                const std::vector<std::pair<std::string, T>>& words, T& chosen) {
    std::vector<std::string> names;
    names.reserve(words.size());
    for (const auto& word : words)
        names.push_back(word.first);
    const std::string known = fmt::format("{}", fmt::join(names, "|"));
    const auto take = [=, &chosen](const std::string& text) {
        const auto found = std::find_if(words.begin(), words.end(),
                                        [&](const auto& word) { return word.first == text; });
        if (found == words.end()) {
            throw CLI::ValidationError(fmt::format("{} takes {}, not '{}'", name, known, text));
        }
        chosen = found->second;
    };
    app.add_option_function<std::string>(name, take, help)->type_name(known)->default_str("auto");
}

void add_offload_option(CLI::App& app, std::vector<Offload>& offloads) {
    const auto take = [&offloads](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
            auto offload = Offload::parse(text);
            if (!offload) throw CLI::ValidationError("--offload: " + offload.error().message);
            offloads.push_back(*std::move(offload));
        }
    };
    app.add_option_function<std::vector<std::string>>(
           "--offload", take,
           "put layers, their weights and their memory, on a device: all, N (the last N) or A-B, "
           "each with @NAME for another than the first that `cellar devices` lists; may be given "
           "more than once")
        ->type_name("LAYERS")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

const std::vector<std::pair<std::string, AttentionChoice>>& attention_choices() {
    static const std::vector<std::pair<std::string, AttentionChoice>> kChoices = {
        {"auto", AttentionChoice::kAuto},
        {"kernel", AttentionChoice::kKernel},
        {"graph", AttentionChoice::kGraph}};
    return kChoices;
}

CLI::Option* add_whole(CLI::App& app, const std::string& name, int64_t low, int64_t high,
                       const std::string& help, std::function<void(int64_t)> set) {
    return add_number<int64_t>(app, name, low, high, "a whole number", help, std::move(set));
}

CLI::Option* add_real(CLI::App& app, const std::string& name, double low, double high,
                      const std::string& help, std::function<void(double)> set) {
    return add_number<double>(app, name, low, high, "a number", help, std::move(set));
}

ComputeOptions::ComputeOptions()
    : n_threads(std::clamp(std::thread::hardware_concurrency(), 1u, 512u)) {
}

DecoderOptions ComputeOptions::decoder_options(uint32_t n_cells) const {
    DecoderOptions options;
    options.n_cells = n_cells;
    options.page_size = page;
    options.max_ubatch = ubatch;
    options.n_threads = n_threads;
    options.type_k = type_k;
    options.type_v = type_v;
    options.attention = attention;
    options.flash = flash;
    return options;
}

void add_compute_options(CLI::App& app, ComputeOptions& options) {
    add_whole(app, "-t,--threads", 1, 512, "threads that compute", [&options](int64_t n) {
        options.n_threads = static_cast<uint32_t>(n);
    })->default_str(std::to_string(options.n_threads));
    add_whole(app, "--ubatch", 1, 65536, "most tokens that one graph computes",
              [&options](int64_t n) { options.ubatch = static_cast<uint32_t>(n); })
        ->default_str(std::to_string(options.ubatch));
    add_whole(app, "--page", 1, 256, "cells in a page: a power of two", [&options](int64_t n) {
        if ((n & (n - 1)) != 0) {
            throw CLI::ValidationError(
                fmt::format("--page takes a power of two from 1 to 256, not '{}'", n));
        }
        options.page = static_cast<uint32_t>(n);
    })->default_str(std::to_string(options.page));
    add_kv_type(app, "--type-k", fmt::format("how keys are stored: {}", kv_type_names()),
                options.type_k);
    add_kv_type(app, "--type-v", "how values are stored", options.type_v);
    add_choice<AttentionChoice>(app, "--attention",
                                "our kernel over pages (auto), or ggml's operations over copies",
                                attention_choices(), options.attention);
    add_choice<Flash>(app, "--flash", "with --attention graph: ggml's flash attention (auto: on)",
                      {{"auto", Flash::kAuto}, {"on", Flash::kOn}, {"off", Flash::kOff}},
                      options.flash);
    add_offload_option(app, options.offloads);
}

void add_rope_options(CLI::App& app, RopeOverrides& rope) {
    const auto add = [&app](const std::string& name, float low, float high, const std::string& help,
                            std::optional<float>& value) {
        add_real(app, name, static_cast<double>(low), static_cast<double>(high), help,
                 [&value](double x) { value = static_cast<float>(x); });
    };
    add("--rope-freq-base", RopeOverrides::kMinBase, RopeOverrides::kMaxBase,
        "base of the rotary positions' frequencies (unless given, these are the model's)",
        rope.freq_base);
    add("--rope-freq-scale", RopeOverrides::kMinScale, RopeOverrides::kMaxScale,
        "what frequencies are scaled by: 1/N for N times the context", rope.freq_scale);
    const auto take = [&rope](const std::string& text) {
        const std::pair<const char*, RopeScaling> words[] = {{"none", RopeScaling::kNone},
                                                             {"linear", RopeScaling::kLinear},
                                                             {"yarn", RopeScaling::kYarn}};
        for (const auto& word : words) {
            if (text == word.first) {
                rope.scaling = word.second;
                return;
            }
        }
        throw CLI::ValidationError(
            fmt::format("--rope-scaling takes none|linear|yarn, not '{}'", text));
    };
    app.add_option_function<std::string>("--rope-scaling", take, "how frequencies are scaled")
        ->type_name("none|linear|yarn");
    add("--yarn-ext-factor", 0, 1, "how much of YaRN's blend of frequencies", rope.yarn_ext_factor);
    add("--yarn-attn-factor", RopeOverrides::kMinMagnitude, RopeOverrides::kMaxMagnitude,
        "a factor on the magnitude of queries and keys", rope.yarn_attn_factor);
    add("--yarn-beta-fast", RopeOverrides::kMinBeta, RopeOverrides::kMaxBeta,
        "turns in the original context from which frequencies are not scaled", rope.yarn_beta_fast);
    add("--yarn-beta-slow", RopeOverrides::kMinBeta, RopeOverrides::kMaxBeta,
        "turns in it up to which they are scaled in full", rope.yarn_beta_slow);
    add_whole(app, "--yarn-orig-ctx", 1, kMaxWhole, "tokens of the original context",
              [&rope](int64_t n) { rope.yarn_orig_ctx = static_cast<uint32_t>(n); });
}

void add_model_option(CLI::App& app, std::string& file) {
    app.add_option("-m,--model", file, "the model, a GGUF file")->type_name("FILE")->required();
}

uint32_t ContextOption::resolve(uint32_t n_ctx_train) const {
    if (given && *given > 0) {
        return *given;
    }
    if (n_ctx_train == 0) {
        return kDefaultContext;
    }
    return given ? n_ctx_train : std::min(n_ctx_train, kDefaultContext);
}

void add_context_option(CLI::App& app, ContextOption& option) {
    add_whole(app, "-c,--ctx", 0, kMaxWhole,
              "tokens of context; 0: as many as the model was trained on",
              [&option](int64_t n) { option.given = static_cast<uint32_t>(n); })
        ->default_str(fmt::format("{}, or the model's if less", kDefaultContext));
}

void add_sampling_options(CLI::App& app, SamplerParams& params) {
    params.seed = std::random_device{}();
    add_real(app, "--temp", -1.0, 1000.0, "temperature; 0 or less: always the likeliest token",
             [&params](double x) { params.temperature = static_cast<float>(x); })
        ->default_str("0.8");
    add_number<uint64_t>(app, "--seed", 0, std::numeric_limits<uint64_t>::max(), "a whole number",
                         "the same seed gives the same text",
                         [&params](uint64_t n) { params.seed = n; })
        ->default_str("another for each run");
    add_whole(app, "--top-k", 0, kMaxWhole, "keep the k likeliest tokens; 0: all",
              [&params](int64_t n) { params.top_k = static_cast<uint32_t>(n); })
        ->default_str("40");
    add_real(app, "--top-p", 0.0, 1.0, "keep the likeliest tokens that together reach p; 1: all",
             [&params](double x) { params.top_p = static_cast<float>(x); })
        ->default_str("0.95");
    add_real(app, "--min-p", 0.0, 1.0, "keep tokens of p times the likeliest's chance; 0: all",
             [&params](double x) { params.min_p = static_cast<float>(x); })
        ->default_str("0.05");
    add_real(app, "--repeat-penalty", 0.001, 1000.0, "make recent tokens less likely; 1: do not",
             [&params](double x) { params.repeat_penalty = static_cast<float>(x); })
        ->default_str("1.0");
    add_whole(app, "--repeat-last-n", -1, kMaxWhole, "how many tokens are recent; -1: all",
              [&params](int64_t n) { params.repeat_last_n = static_cast<int32_t>(n); })
        ->default_str("64");
}

}  // namespace cellar::cli
