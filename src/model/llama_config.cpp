#include "model/llama_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gguf/printable.h"
#include "model/metadata.h"

namespace cellar {

namespace {

// Far beyond any model (405B: 126 layers, 16384 wide, 128 heads, 53248 inside the feed-forward
// block), and small enough that products of any two fit into 32 bits signed or 64 bits easily.
constexpr uint32_t kMaxEmbd = 1 << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 4096;
constexpr uint32_t kMaxFf = 1 << 24;
constexpr uint32_t kMaxVocab = 1 << 24;
constexpr uint32_t kMaxContext = std::numeric_limits<int32_t>::max();

// Reads one key after the other into `config_`. Steps return false once `problem_` is set.
class Reader {
public:
    Reader(const GgufFile& file, std::string_view architecture, std::string_view norm_eps,
           uint32_t least_heads)
        : file_(file),
          architecture_(architecture),
          norm_eps_(norm_eps),
          least_heads_(least_heads) {}

    Result<LlamaConfig> read() {
        if (architecture() && nothing_unsupported() && sizes() && heads() && vocabulary() &&
            numbers())
            return std::move(config_);
        return tl::unexpected<Error>(std::move(problem_));
    }

private:
    bool refuse(Code code, std::string_view message) {
        problem_ = Error{code, fmt::format("{}: {}", file_.path(), message), std::nullopt};
        return false;
    }

    std::string key(std::string_view name) const {
        return fmt::format("{}.{}", architecture_, name);
    }

    // Moves a result's value into `to`, or its error into problem_.
    template <class T, class U>
    bool take(Result<T>&& result, U& to) {
        if (result) {
            to = std::move(*result);
            return true;
        }
        problem_ = std::move(result).error();
        return false;
    }

    bool architecture() {
        std::string_view name;
        if (!take(file_.string("general.architecture"), name)) return false;
        if (name == architecture_) return true;
        return refuse(Code::kUnsupported, fmt::format("this model's architecture is '{}', not '{}'",
                                                      printable(name), architecture_));
    }

    bool nothing_unsupported() {
        std::optional<bool> causal;
        std::optional<int64_t> experts;
        std::optional<int64_t> draft_layers;
        if (!take(file_.find_boolean(key("attention.causal")), causal) ||
            !take(file_.find_integer(key("expert_count")), experts) ||
            !take(file_.find_integer(key("nextn_predict_layers")), draft_layers))
            return false;
        if (!causal.value_or(true))
            return refuse(Code::kUnsupported, "attention that is not causal is not supported");
        if (experts.value_or(0) != 0)
            return refuse(Code::kUnsupported,
                          fmt::format("a model with {} experts is not supported", *experts));
        if (draft_layers.value_or(0) != 0)
            return refuse(Code::kUnsupported,
                          fmt::format("{} layers that predict several tokens are not supported",
                                      *draft_layers));
        return true;
    }

    bool sizes() {
        return take(count_in(file_, key("block_count"), 1, kMaxLayers), config_.n_layer) &&
               take(count_in(file_, key("embedding_length"), 1, kMaxEmbd), config_.n_embd) &&
               take(count_in(file_, key("context_length"), 1, kMaxContext), config_.n_ctx_train) &&
               uniform("feed_forward_length", 1, kMaxFf, config_.n_ff) &&
               uniform("attention.head_count", least_heads_, kMaxHeads, config_.n_head);
    }

    // A number that GGUF allows to differ by layer, and this architecture does not; 0 apart, where
    // `low` lets it be.
    bool uniform(std::string_view name, uint32_t low, uint32_t high, uint32_t& to) {
        const std::string key = this->key(name);
        std::optional<std::vector<uint32_t>> counts;
        if (!take(find_counts_in(file_, key, config_.n_layer, low, high), counts)) return false;
        if (!counts) return refuse(Code::kBadFile, fmt::format("key '{}' is missing", key));
        to = *std::max_element(counts->begin(), counts->end());
        if (to == 0) return refuse(Code::kBadFile, fmt::format("key '{}' is 0", key));
        const auto differs = std::find_if(counts->begin(), counts->end(), [&](uint32_t count) {
            return count != to && count != 0;
        });
        if (differs == counts->end()) return true;
        return refuse(Code::kUnsupported,
                      fmt::format("key '{}' differs by layer ({} and {}), which is not supported",
                                  key, to, *differs));
    }

    bool heads() { return heads_kv() && head_dim(); }

    bool heads_kv() {
        std::optional<std::vector<uint32_t>> counts;
        if (!take(find_counts_in(file_, key("attention.head_count_kv"), config_.n_layer,
                                 least_heads_, config_.n_head),
                  counts))
            return false;
        config_.n_head_kv =
            counts ? std::move(*counts) : std::vector<uint32_t>(config_.n_layer, config_.n_head);
        for (const uint32_t count : config_.n_head_kv) {
            if (count != 0 && config_.n_head % count != 0)
                return refuse(Code::kBadFile,
                              fmt::format("{} key-value heads do not divide {} query heads", count,
                                          config_.n_head));
        }
        if (*std::max_element(config_.n_head_kv.begin(), config_.n_head_kv.end()) > 0) return true;
        return refuse(Code::kBadFile, "no layer has key-value heads");
    }

    bool head_dim() {
        std::optional<uint32_t> of_keys;
        std::optional<uint32_t> of_values;
        if (!take(find_count_in(file_, key("attention.key_length"), 2, kMaxHeadDim), of_keys) ||
            !take(find_count_in(file_, key("attention.value_length"), 2, kMaxHeadDim), of_values))
            return false;
        const uint32_t divided = config_.n_embd / config_.n_head;
        if (!of_keys && (config_.n_embd % config_.n_head != 0 || divided < 2))
            return refuse(Code::kBadFile, fmt::format("{} heads do not divide an embedding of {}",
                                                      config_.n_head, config_.n_embd));
        config_.head_dim = of_keys.value_or(divided);
        config_.attn_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
        if (of_values.value_or(config_.head_dim) == config_.head_dim) return true;
        return refuse(Code::kUnsupported,
                      fmt::format("keys of {} and values of {} dimensions are not supported",
                                  config_.head_dim, *of_values));
    }

    // The embedding table decides; where there is a tokenizer, it must have as many tokens.
    bool vocabulary() {
        const TensorInfo* table = file_.find_tensor("token_embd.weight");
        if (table == nullptr)
            return refuse(Code::kBadFile, "tensor 'token_embd.weight' is missing");
        if (table->ne[1] > kMaxVocab)
            return refuse(Code::kBadFile, fmt::format("the vocabulary has {} tokens; at most {} "
                                                      "make sense",
                                                      table->ne[1], kMaxVocab));
        config_.n_vocab = static_cast<uint32_t>(table->ne[1]);
        std::optional<std::vector<std::string_view>> tokens;
        if (!take(file_.find_strings("tokenizer.ggml.tokens"), tokens)) return false;
        if (!tokens || tokens->size() == config_.n_vocab) return true;
        return refuse(
            Code::kBadFile,
            fmt::format("the tokenizer has {} tokens, but the embedding table has {} rows",
                        tokens->size(), config_.n_vocab));
    }

    bool numbers() {
        const std::string eps = key(norm_eps_);
        if (!file_.has(eps)) return refuse(Code::kBadFile, fmt::format("key '{}' is missing", eps));
        return take(real_in(file_, eps, 0, 1, 0), config_.norm_eps) &&
               take(read_rope(file_, architecture_, config_.head_dim, config_.n_ctx_train),
                    config_.rope);
    }

    const GgufFile& file_;
    const std::string_view architecture_;
    const std::string_view norm_eps_;
    const uint32_t least_heads_;  // of a layer
    LlamaConfig config_;
    Error problem_;
};

}  // namespace

Result<LlamaConfig> read_llama_config(const GgufFile& file, std::string_view architecture,
                                      std::string_view norm_eps, LayersWithoutHeads without_heads) {
    const uint32_t least = without_heads == LayersWithoutHeads::kAllowed ? 0 : 1;
    return Reader(file, architecture, norm_eps, least).read();
}

}  // namespace cellar
