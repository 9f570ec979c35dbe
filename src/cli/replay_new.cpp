#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cli/options.h"
#include "cli/replayer.h"
#include "memory/kv_type.h"

namespace cellar::cli {

namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// A number of `fields` for a setting; the setting's own value where the key is missing.
Result<void> set_whole(const JsonFields& fields, std::string_view key, int64_t low, int64_t high,
                       uint32_t& setting) {
    auto number = fields.whole_or(key, low, high, setting);
    if (!number) {
        return pass(std::move(number));
    }
    setting = static_cast<uint32_t>(*number);
    return {};
}

Result<void> set_type(const JsonFields& fields, std::string_view key, KvType& setting) {
    auto text = fields.string_or(key, name(setting));
    if (!text) {
        return pass(std::move(text));
    }
    const std::optional<KvType> type = parse_kv_type(*text);
    if (!type) {
        return fail(Code::kInvalidArgument,
                    fmt::format("\"{}\" must be one of {}", key, kv_type_names()));
    }
    setting = *type;
    return {};
}

Result<void> set_attention(const JsonFields& fields, AttentionChoice& setting) {
    if (!fields.has("attention")) return {};
    auto text = fields.string_or("attention", "auto");
    if (!text) {
        return pass(std::move(text));
    }
    for (const auto& [word, choice] : attention_choices()) {
        if (*text == word) {
            setting = choice;
            return {};
        }
    }
    return fail(Code::kInvalidArgument, "\"attention\" must be one of auto, kernel, graph");
}

// Settings of `new` beside types; what is missing stays.
Result<void> set_numbers(const JsonFields& fields, DecoderOptions& options) {
    struct Setting {
        const char* key;
        int64_t high;
        uint32_t& value;
    };
    for (const Setting& setting :
         {Setting{"cells", kMaxInt, options.n_cells},
          Setting{"ubatch", kMaxInt, options.max_ubatch}, Setting{"page", 256, options.page_size},
          Setting{"threads", 512, options.n_threads},
          Setting{"grow_step", kMaxInt, options.grow_step},
          Setting{"defrag_cells", kMaxInt, options.defrag_cells}}) {
        if (auto set = set_whole(fields, setting.key, 1, setting.high, setting.value); !set) {
            return set;
        }
    }
    for (const Setting& setting : {Setting{"n_rollback", 1024, options.n_rollback},
                                   Setting{"checkpoints", 1024, options.max_checkpoints},
                                   Setting{"sequences", kMaxInt, options.n_sequences}}) {
        if (auto set = set_whole(fields, setting.key, 0, setting.high, setting.value); !set) {
            return set;
        }
    }
    if (options.n_sequences > 0) {
        options.n_states = 0;
    }
    auto swa_full = fields.boolean_or("swa_full", options.swa_full);
    if (!swa_full) {
        return pass(std::move(swa_full));
    }
    options.swa_full = *swa_full;
    if (fields.has("budget_bytes")) {
        auto bytes = fields.whole("budget_bytes", 1, std::numeric_limits<int64_t>::max());
        if (!bytes) {
            return pass(std::move(bytes));
        }
        options.budget_bytes = static_cast<uint64_t>(*bytes);
        // Unless both are given: then the memory complains.
        options.n_cells = fields.has("cells") ? options.n_cells : 0;
    }
    if (fields.has("defrag_threshold")) {
        auto threshold = fields.real("defrag_threshold", 0.0, 1.0);
        if (!threshold) {
            return pass(std::move(threshold));
        }
        options.defrag_threshold = *threshold;
    }
    return {};
}

}  // namespace

Result<Answer> Replayer::make_new(const JsonFields& fields) {
    DecoderOptions options = defaults_;
    if (auto set = set_numbers(fields, options); !set) {
        return pass(std::move(set));
    }
    if (auto set = set_type(fields, "type_k", options.type_k); !set) {
        return pass(std::move(set));
    }
    if (auto set = set_type(fields, "type_v", options.type_v); !set) {
        return pass(std::move(set));
    }
    if (auto set = set_attention(fields, options.attention); !set) {
        return pass(std::move(set));
    }
    if (auto made = replace_memory(options); !made) {
        return pass(std::move(made));
    }
    return Answer{{"cells", memory().config().n_cells},
                  {"page", memory().config().page_size},
                  {"bytes", memory().bytes()}};
}

}  // namespace cellar::cli
