// Reading and loading models of architecture `llama`: real ones, and ones whose settings lie.

#include <ggml-cpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "model/llama_config.h"
#include "model/llama_weights.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::raw;
using testing::ScratchFile;
using testing::tensor_entry;

constexpr const char* kTinyLlama = CELLAR_TEST_DATA "/models/tiny-llama.gguf";
constexpr const char* kSmolLm2 = CELLAR_MODELS "/SmolLM2-135M-Instruct.Q4_1.gguf";

using Edit = std::function<void(gguf_context*)>;

// tiny-llama.gguf with other metadata.
std::string tiny_llama_with(const Edit& edit) {
    const std::string original = testing::read_file(kTinyLlama);
    const gguf_context_ptr context(gguf_init_from_file(kTinyLlama, {true, nullptr}));
    const std::string data = original.substr(gguf_get_data_offset(context.get()));
    edit(context.get());
    std::string bytes(gguf_get_meta_size(context.get()), '\0');
    gguf_get_meta_data(context.get(), bytes.data());
    return bytes + data;
}

GgufFile open(const std::string& bytes) {
    const ScratchFile scratch(bytes);
    auto file = GgufFile::open(scratch.path());
    if (!file) throw std::runtime_error(file.error().message);
    return std::move(*file);
}

LlamaConfig config_with(const Edit& edit) {
    auto config = read_llama_config(open(tiny_llama_with(edit)));
    if (!config) throw std::runtime_error(config.error().message);
    return std::move(*config);
}

Result<LlamaWeights> load(const GgufFile& file) {
    auto config = read_llama_config(file);
    if (!config) return pass(std::move(config));
    return load_llama(file, *config);
}

TEST(LlamaConfig, OfTinyLlama) {
    const LlamaConfig config = config_with([](gguf_context*) {});
    EXPECT_EQ(config.n_layer, 4u);
    EXPECT_EQ(config.n_embd, 64u);
    EXPECT_EQ(config.n_head, 4u);
    EXPECT_THAT(config.n_head_kv, ::testing::ElementsAre(2, 2, 2, 2));
    EXPECT_EQ(config.head_dim, 16u);
    EXPECT_EQ(config.n_ff, 96u);
    EXPECT_EQ(config.n_vocab, 128u);
    EXPECT_EQ(config.n_ctx_train, 256u);
    EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
    EXPECT_FLOAT_EQ(config.attn_scale, 0.25f);
    const Rope& rope = config.rope.rope;
    EXPECT_EQ(config.rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(rope.n_dims, 16);
    EXPECT_EQ(rope.mode, GGML_ROPE_TYPE_NORMAL);
    EXPECT_EQ(rope.n_ctx_orig, 256);
    EXPECT_EQ(rope.freq_base, 10000.0f);
    EXPECT_EQ(rope.freq_scale, 1.0f);  // the file's factor is 0
    EXPECT_EQ(rope.ext_factor, 0.0f);
    EXPECT_EQ(rope.attn_factor, 1.0f);
}

TEST(LlamaConfig, MissingKeysHaveLlamaCppsDefaults) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        for (const char* key :
             {"llama.attention.head_count_kv", "llama.attention.key_length",
              "llama.attention.value_length", "llama.rope.dimension_count", "llama.rope.freq_base",
              "llama.rope.scaling.type", "llama.rope.scaling.factor",
              "llama.rope.scaling.original_context_length", "llama.attention.causal"}) {
            EXPECT_GE(gguf_remove_key(gguf, key), 0) << key;
        }
    });
    EXPECT_THAT(config.n_head_kv, Each(4u));
    EXPECT_EQ(config.head_dim, 16u);
    EXPECT_EQ(config.rope.rope.freq_base, 10000.0f);
    EXPECT_EQ(config.rope.rope.n_ctx_orig, 256);
    EXPECT_EQ(config.rope.scaling, RopeScaling::kLinear);
}

TEST(LlamaConfig, ValuesAreAsWideAsKeysUnlessTheFileSaysOtherwise) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        gguf_set_val_u32(gguf, "llama.attention.head_count", 8);
        gguf_remove_key(gguf, "llama.attention.value_length");
    });
    EXPECT_EQ(config.head_dim, 16u);  // and not 64 / 8
}

TEST(LlamaConfig, HeadsOfKeysMayDifferByLayer) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        const uint32_t counts[] = {4, 2, 1, 2};
        gguf_set_arr_data(gguf, "llama.attention.head_count_kv", GGUF_TYPE_UINT32, counts, 4);
    });
    EXPECT_THAT(config.n_head_kv, ::testing::ElementsAre(4, 2, 1, 2));
}

TEST(LlamaConfig, LinearScalingUnderBothItsNames) {
    EXPECT_EQ(config_with([](gguf_context* gguf) {
                  gguf_set_val_f32(gguf, "llama.rope.scaling.factor", 4);
              }).rope.rope.freq_scale,
              0.25f);
    EXPECT_EQ(config_with([](gguf_context* gguf) {
                  gguf_remove_key(gguf, "llama.rope.scaling.factor");
                  gguf_set_val_f32(gguf, "llama.rope.scale_linear", 2);
              }).rope.rope.freq_scale,
              0.5f);
}

TEST(LlamaConfig, NoScalingIgnoresTheFactor) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        gguf_set_val_str(gguf, "llama.rope.scaling.type", "none");
        gguf_set_val_f32(gguf, "llama.rope.scaling.factor", 4);
    });
    EXPECT_EQ(config.rope.rope.freq_scale, 1.0f);
}

// What ggml's YaRN multiplies magnitudes by, 1 + 0.1 ln(factor), is what the recipe wants.
TEST(LlamaConfig, YarnLeavesTheMagnitudeToGgml) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        gguf_set_val_str(gguf, "llama.rope.scaling.type", "yarn");
        gguf_set_val_f32(gguf, "llama.rope.scaling.factor", 8);
        gguf_set_val_f32(gguf, "llama.rope.scaling.attn_factor", 0.5f);
        gguf_set_val_u32(gguf, "llama.rope.scaling.original_context_length", 32);
    });
    EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
    EXPECT_EQ(config.rope.rope.ext_factor, 1.0f);
    EXPECT_FLOAT_EQ(config.rope.rope.attn_factor, 0.5f);
    EXPECT_EQ(config.rope.rope.freq_scale, 0.125f);
    EXPECT_EQ(config.rope.rope.n_ctx_orig, 32);
    EXPECT_EQ(config.rope.rope.beta_fast, 32.0f);
    EXPECT_EQ(config.rope.rope.beta_slow, 1.0f);
}

// llama.cpp reads none of these for llama, so a file's odd values change nothing.
TEST(LlamaConfig, KeysOfOtherArchitecturesAreIgnored) {
    const LlamaConfig config = config_with([](gguf_context* gguf) {
        gguf_set_val_f32(gguf, "llama.attention.scale", 3.0f);
        gguf_set_val_f32(gguf, "llama.attn_logit_softcapping", 1.0f);
        gguf_set_val_u32(gguf, "llama.attention.sliding_window", 4);
        gguf_set_val_f32(gguf, "llama.rope.scaling.yarn_ext_factor", 7.0f);
    });
    EXPECT_FLOAT_EQ(config.attn_scale, 0.25f);
    EXPECT_EQ(config.rope.rope.ext_factor, 0.0f);
}

struct Lie {
    const char* name;
    Code code;
    const char* sentence;  // a part of it
    Edit edit;
};

void PrintTo(const Lie& lie, std::ostream* out) {
    *out << lie.name;
}

Edit set_u32(const char* key, uint32_t value) {
    return [=](gguf_context* gguf) { gguf_set_val_u32(gguf, key, value); };
}

Edit set_f32(const char* key, float value) {
    return [=](gguf_context* gguf) { gguf_set_val_f32(gguf, key, value); };
}

Edit set_str(const char* key, const char* value) {
    return [=](gguf_context* gguf) { gguf_set_val_str(gguf, key, value); };
}

Edit remove_key(const char* key) {
    return [=](gguf_context* gguf) { gguf_remove_key(gguf, key); };
}

Edit set_layers(const char* key, std::vector<int32_t> values) {
    return [=](gguf_context* gguf) {
        gguf_set_arr_data(gguf, key, GGUF_TYPE_INT32, values.data(), values.size());
    };
}

std::vector<Lie> lies() {
    constexpr Code kBad = Code::kBadFile;
    constexpr Code kCannot = Code::kUnsupported;
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const char* const layers = "llama.block_count";
    const char* const heads = "llama.attention.head_count";
    const char* const heads_kv = "llama.attention.head_count_kv";
    const char* const eps = "llama.attention.layer_norm_rms_epsilon";
    const char* const factor = "llama.rope.scaling.factor";
    return {
        {"NoArchitecture", kBad, "'general.architecture' is missing",
         remove_key("general.architecture")},
        {"OtherArchitecture", kCannot, "architecture is 'mamba', not 'llama'",
         set_str("general.architecture", "mamba")},
        {"ArchitectureIsANumber", kBad, "where a string is expected",
         set_u32("general.architecture", 1)},
        {"NoLayers", kBad, "'llama.block_count' is 0, which lies outside 1 to 1024",
         set_u32(layers, 0)},
        {"NegativeLayers", kBad, "is -1, which lies outside",
         [=](gguf_context* gguf) { gguf_set_val_i32(gguf, layers, -1); }},
        {"BillionsOfLayers", kBad, "is 4294967295, which lies outside",
         set_u32(layers, 0xffffffff)},
        {"LayersMissing", kBad, "key 'llama.block_count' is missing", remove_key(layers)},
        {"LayersAreText", kBad, "is a str where an integer", set_str(layers, "4")},
        {"MoreLayersThanTensors", kBad, "tensor 'blk.4.attn_norm.weight' of shape [64] is missing",
         set_u32(layers, 5)},
        {"OtherWidth", kBad, "has shape [64, 128] where [32, 128] is expected",
         set_u32("llama.embedding_length", 32)},
        {"NoWidth", kBad, "'llama.embedding_length' is 0", set_u32("llama.embedding_length", 0)},
        {"NoContext", kBad, "'llama.context_length' is 0", set_u32("llama.context_length", 0)},
        {"HugeContext", kBad, "is 2147483648, which", set_u32("llama.context_length", 1u << 31)},
        {"FeedForwardMissing", kBad, "'llama.feed_forward_length' is missing",
         remove_key("llama.feed_forward_length")},
        {"FeedForwardOther", kBad, "has shape [64, 96] where [64, 97] is expected",
         set_u32("llama.feed_forward_length", 97)},
        {"NoHeads", kBad, "is 0, which lies outside 1 to 4096", set_u32(heads, 0)},
        {"HeadsDiffer", kCannot, "differs by layer (4 and 2)", set_layers(heads, {4, 4, 2, 4})},
        {"HeadsOfThreeLayers", kBad, "an array of 3 i32 where an integer, or an array of 4,",
         set_layers(heads, {4, 4, 4})},
        {"HeadsDoNotDivide", kBad, "3 heads do not divide an embedding of 64",
         [=](gguf_context* gguf) {
             gguf_set_val_u32(gguf, heads, 3);
             gguf_set_val_u32(gguf, heads_kv, 1);
             gguf_remove_key(gguf, "llama.attention.key_length");
         }},
        {"KeyHeadsDoNotDivide", kBad, "3 key-value heads do not divide 4", set_u32(heads_kv, 3)},
        {"MoreKeyHeads", kBad, "is 8, which lies outside 1 to 4", set_u32(heads_kv, 8)},
        {"NoKeyHeads", kBad, "is 0, which lies outside 1 to 4", set_layers(heads_kv, {2, 0, 2, 2})},
        {"KeysAsWideAsTheSky", kBad, "is 4294967295, which lies outside 2 to 4096",
         set_u32("llama.attention.key_length", 0xffffffff)},
        {"ValuesOfAnotherWidth", kCannot, "keys of 16 and values of 8 dimensions",
         set_u32("llama.attention.value_length", 8)},
        {"RotaryPart", kBad, "turn 8 dimensions of heads 16 wide",
         set_u32("llama.rope.dimension_count", 8)},
        {"EpsMissing", kBad, "epsilon' is missing", remove_key(eps)},
        {"EpsNan", kBad, "is nan, which lies outside 0 to 1", set_f32(eps, kNan)},
        {"EpsNegative", kBad, "is -1, which lies outside", set_f32(eps, -1)},
        {"EpsInfinite", kBad, "is inf, which lies outside", set_f32(eps, kInf)},
        {"BaseZero", kBad, "freq_base' is 0", set_f32("llama.rope.freq_base", 0)},
        {"BaseNan", kBad, "freq_base' is nan", set_f32("llama.rope.freq_base", kNan)},
        {"FactorInfinite", kBad, "factor' is inf", set_f32(factor, kInf)},
        {"FactorNegative", kBad, "factor' is -2", set_f32(factor, -2)},
        {"FactorTiny", kBad, "which is too small", set_f32(factor, 1e-30f)},
        {"AttnFactorNan", kBad, "attn_factor' is nan",
         set_f32("llama.rope.scaling.attn_factor", kNan)},
        {"UnknownScaling", kCannot, "rope scaling of type 'su' is unknown",
         set_str("llama.rope.scaling.type", "su")},
        {"TerminalScaling", kCannot, "type '?[2J' is",
         set_str("llama.rope.scaling.type", "\x1b[2J")},
        {"Experts", kCannot, "a model with 8 experts", set_u32("llama.expert_count", 8)},
        {"NotCausal", kCannot, "not causal",
         [](gguf_context* gguf) { gguf_set_val_bool(gguf, "llama.attention.causal", false); }},
        {"DraftLayers", kCannot, "1 layers that predict", set_u32("llama.nextn_predict_layers", 1)},
        {"OtherVocabulary", kBad, "the tokenizer has 2 tokens, but the embedding table has 128",
         [](gguf_context* gguf) {
             const char* tokens[] = {"a", "b"};
             gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", tokens, 2);
         }},
    };
}

class LyingLlama : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingLlama, IsRefusedInOneSentence) {
    const GgufFile file = open(tiny_llama_with(GetParam().edit));
    const auto refused = load(file);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, GetParam().code);
    EXPECT_THAT(refused.error().message, HasSubstr(GetParam().sentence));
    EXPECT_THAT(refused.error().message, ::testing::StartsWith(file.path() + ": "));
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingLlama, ::testing::ValuesIn(lies()),
                         [](const auto& of) { return std::string(of.param.name); });

std::string tiny_llama_patched(std::string_view from, std::string_view to) {
    return testing::patched(testing::read_file(kTinyLlama), from, to);
}

TEST(LlamaWeights, MissingAndMisshapenTensorsAreNamed) {
    const auto missing =
        load(open(tiny_llama_patched("blk.2.attn_k.weight", "blk.2.attn_X.weight")));
    ASSERT_FALSE(missing.has_value());
    EXPECT_THAT(missing.error().message,
                HasSubstr("tensor 'blk.2.attn_k.weight' of shape [64, 32] is missing"));

    const auto turned =
        load(open(tiny_llama_patched(tensor_entry("blk.1.ffn_up.weight", {64, 96}, 0),
                                     tensor_entry("blk.1.ffn_up.weight", {96, 64}, 0))));
    ASSERT_FALSE(turned.has_value());
    EXPECT_THAT(turned.error().message,
                HasSubstr("'blk.1.ffn_up.weight' has shape [96, 64] where [64, 96] is expected"));

    const auto integers =
        load(open(tiny_llama_patched(tensor_entry("output_norm.weight", {64}, 0),
                                     tensor_entry("output_norm.weight", {64}, GGML_TYPE_I32))));
    ASSERT_FALSE(integers.has_value());
    EXPECT_EQ(integers.error().code, Code::kUnsupported);
    EXPECT_THAT(integers.error().message, HasSubstr("'output_norm.weight' has type i32"));
}

// Sampled, as each load takes a millisecond; the metadata alone is tested at every byte in
// tests/gguf.
TEST(LlamaWeights, FlippedBitsOfTheMetadataNeverCrashTheLoad) {
    const std::string original = testing::read_file(kTinyLlama);
    const ScratchFile scratch(original);
    constexpr size_t kMetadata = 26528;
    for (size_t i = 0; i < kMetadata; i += 7) {
        const auto flipped = static_cast<char>(original[i] ^ (1 << (i % 8)));
        scratch.patch(i, raw(flipped));
        if (const auto file = GgufFile::open(scratch.path())) {
            const auto weights = load(*file);
            EXPECT_TRUE(weights.has_value() || !weights.error().message.empty());
        }
        scratch.patch(i, raw(original[i]));
    }
}

TEST(LlamaWeights, OfTinyLlamaAreTheFilesNumbers) {
    const GgufFile file = std::move(*GgufFile::open(kTinyLlama));
    const auto weights = load(file);
    ASSERT_TRUE(weights.has_value()) << weights.error().message;
    ASSERT_EQ(weights->layers.size(), 4u);
    EXPECT_FALSE(weights->outer.tied);
    EXPECT_NE(weights->outer.output.weight, weights->outer.token_embd);
    EXPECT_EQ(weights->outer.output.scale, nullptr);
    ASSERT_NE(weights->rope_freqs, nullptr);
    EXPECT_EQ(weights->rope_factors(1 << 20, Rope{}), weights->rope_freqs);

    const LlamaLayer& layer = weights->layers[3];
    for (const Linear& linear : {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up}) {
        EXPECT_NE(linear.bias, nullptr);
        EXPECT_NE(linear.scale, nullptr);
    }
    const std::byte* bytes = file.mapping()->bytes().data();
    for (const ggml_tensor* tensor : {layer.attn_norm, layer.down.weight, layer.q.bias,
                                      layer.gate.scale, weights->outer.output_norm}) {
        const TensorInfo* info = file.find_tensor(ggml_get_name(tensor));
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(0, std::memcmp(tensor->data, bytes + info->offset, info->bytes)) << info->name;
    }
    EXPECT_EQ(weights->memory.bytes_repacked(), 0u);  // f32 stays as it is
}

TEST(LlamaWeights, EveryTensorThatTheGraphNeedsIsLoadedOnce) {
    const GgufFile file = std::move(*GgufFile::open(kTinyLlama));
    uint64_t needed = 0;
    for (const TensorInfo& info : file.tensors()) {
        if (info.name.find(".input_scale") == info.name.npos) needed += info.bytes;
    }
    EXPECT_EQ(load(file)->memory.bytes(), needed);
}

TEST(LlamaWeights, OfSmolLm2) {
    if (!std::filesystem::exists(kSmolLm2)) GTEST_SKIP() << kSmolLm2 << " is not here";
    const GgufFile file = std::move(*GgufFile::open(kSmolLm2));
    const auto config = read_llama_config(file);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_EQ(config->n_layer, 30u);
    EXPECT_EQ(config->head_dim, 64u);
    EXPECT_THAT(config->n_head_kv, Each(3u));
    EXPECT_EQ(config->rope.rope.freq_base, 100000.0f);

    const auto weights = load_llama(file, *config);
    ASSERT_TRUE(weights.has_value()) << weights.error().message;
    EXPECT_TRUE(weights->outer.tied);
    EXPECT_EQ(weights->rope_factors(100, config->rope.rope), nullptr);
    EXPECT_EQ(weights->layers[29].q.bias, nullptr);
    EXPECT_STREQ(ggml_get_name(weights->outer.output.weight), "token_embd.weight");
    EXPECT_GT(weights->memory.bytes(), 90'000'000u);
}

}  // namespace
}  // namespace cellar
