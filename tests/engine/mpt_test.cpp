// What the expected logits do not show of mpt.

#include <ggml-cpp.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decoding.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using testing::Decoding;
using testing::load_model_of;
using testing::max_difference;
using testing::Row;
using testing::ScratchFile;
using testing::tensor_entry;

constexpr const char* kTinyMpt = CELLAR_TEST_DATA "/models/tiny-mpt.gguf";
constexpr int kLayers = 4;
constexpr int64_t kWidth = 64;  // of queries, of keys and of values
constexpr int64_t kPositions = 256;

// tiny-mpt.gguf, to be changed and written elsewhere. Its tensors are f32.
class Editable {
public:
    Editable() {
        ggml_context* data = nullptr;
        const gguf_context_ptr read(gguf_init_from_file(kTinyMpt, {false, &data}));
        data_.reset(data);
        gguf_.reset(gguf_init_empty());
        gguf_set_kv(gguf_.get(), read.get());
        for (int64_t i = 0; i < gguf_get_n_tensors(read.get()); i++) {
            gguf_add_tensor(gguf_.get(),
                            ggml_get_tensor(data, gguf_get_tensor_name(read.get(), i)));
        }
        more_.reset(ggml_init({.mem_size = 1 << 16, .mem_buffer = nullptr, .no_alloc = false}));
    }

    gguf_context* keys() { return gguf_.get(); }

    void add_vector(const std::string& name, float value) {
        ggml_tensor* tensor = ggml_new_tensor_1d(more_.get(), GGML_TYPE_F32, kWidth);
        ggml_set_name(tensor, name.c_str());
        std::fill_n(static_cast<float*>(tensor->data), kWidth, value);
        gguf_add_tensor(gguf_.get(), tensor);
    }

    // Multiplies rows [begin, end) of a matrix, or of a bias.
    void scale_rows(const std::string& name, int64_t begin, int64_t end, float by) {
        ggml_tensor* tensor = ggml_get_tensor(data_.get(), name.c_str());
        const int64_t row = ggml_n_dims(tensor) > 1 ? tensor->ne[0] : 1;
        auto* values = static_cast<float*>(tensor->data);
        for (int64_t i = begin * row; i < end * row; i++)
            values[i] *= by;
    }

    Result<std::unique_ptr<Model>> load() const {
        const ScratchFile scratch("");
        EXPECT_TRUE(gguf_write_to_file(gguf_.get(), scratch.path().c_str(), false));
        return load_model_of(testing::read_file(scratch.path()));
    }

private:
    gguf_context_ptr gguf_;
    ggml_context_ptr data_;
    ggml_context_ptr more_;
};

std::string layer_tensor(int layer, std::string_view name) {
    return "blk." + std::to_string(layer) + "." + std::string(name);
}

DecoderOptions f32_options() {
    DecoderOptions options;
    options.n_cells = 512;
    options.max_ubatch = 32;
    options.type_k = options.type_v = KvType::kF32;
    return options;
}

std::vector<Token> tokens(int64_t n) {
    std::vector<Token> tokens(static_cast<size_t>(n));
    for (size_t i = 0; i < tokens.size(); i++)
        tokens[i] = static_cast<Token>(i * 7 % 128);
    return tokens;
}

Row logits(const Model& model) {
    return Decoding(model, f32_options()).append(SeqId{0}, tokens(48));
}

TEST(MptTest, PositionsWithoutAnEmbeddingAreRefusedBeforeAnyIsComputed) {
    const auto model = testing::open_model(kTinyMpt);
    EXPECT_EQ(model->info().n_learned_pos, kPositions);
    Decoding decoding(*model, f32_options());
    Batch batch;
    for (const Token token : tokens(kPositions + 1))
        batch.add(token, SeqId{0});
    const auto refused = decoding.decoder().decode(batch, [](size_t, std::span<const float>) {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kBadRange);
    EXPECT_EQ(refused.error().message, "Position 256 has no embedding: the model has 256.");
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), -1);
    decoding.append(SeqId{0}, tokens(kPositions));
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), kPositions - 1);
}

// Layer norms take every factor away, so a file that has them gives the same logits whatever its
// queries and keys are multiplied by, and one without does not.
TEST(MptTest, NormsOfQueriesAndKeysAreAppliedWhereTheFileHasThem) {
    const auto row = [](bool normed, float factor) {
        Editable file;
        gguf_set_val_f32(file.keys(), "mpt.attention.clamp_kqv", 0);
        for (int i = 0; i < kLayers; i++) {
            if (normed) file.add_vector(layer_tensor(i, "attn_q_norm.weight"), 1.5f);
            for (const char* name : {"attn_qkv.weight", "attn_qkv.bias"}) {
                file.scale_rows(layer_tensor(i, name), 0, 2 * kWidth, factor);
            }
        }
        const auto model = file.load();
        EXPECT_TRUE(model) << model.error().message;
        return logits(**model);
    };
    EXPECT_LE(max_difference(row(true, 1), row(true, 3)), 1e-4f);
    EXPECT_GT(max_difference(row(false, 1), row(false, 3)), 1e-3f);
    EXPECT_GT(max_difference(row(true, 1), row(false, 1)), 1e-3f);
}

TEST(MptTest, BiasesOfNormsMayBeMissing) {
    const std::string bytes = testing::read_file(kTinyMpt);
    const auto model =
        load_model_of(testing::patched(bytes, "output_norm.bias", "output_norm.bXas"));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_GT(max_difference(logits(**model), logits(*testing::open_model(kTinyMpt))), 1e-3f);
}

TEST(MptTest, AbsurdNumbersAreRefused) {
    const auto refused = [](const char* key, float value) {
        Editable file;
        gguf_set_val_f32(file.keys(), key, value);
        return file.load().error();
    };
    EXPECT_EQ(refused("mpt.attention.clamp_kqv", -1).code, Code::kBadFile);
    EXPECT_EQ(refused("mpt.attention.max_alibi_bias", std::numeric_limits<float>::quiet_NaN()).code,
              Code::kBadFile);
    EXPECT_EQ(refused("mpt.attention.layer_norm_epsilon", -1).code, Code::kBadFile);
}

TEST(MptTest, MissingAndMisshapenTensorsAreRefused) {
    const auto refused = [](std::string_view from, std::string_view to) {
        return load_model_of(testing::patched(testing::read_file(kTinyMpt), from, to)).error();
    };
    EXPECT_NE(refused("blk.1.attn_qkv.weight", "blk.1.attn_qkX.weight")
                  .message.find("tensor 'blk.1.attn_qkv.weight' of shape [64, 192] is missing"),
              std::string::npos);
    EXPECT_NE(refused(tensor_entry("position_embd.weight", {64, 256}, 0),
                      tensor_entry("position_embd.weight", {128, 128}, 0))
                  .message.find("'position_embd.weight' has shape [128, 128]"),
              std::string::npos);
}

}  // namespace
}  // namespace cellar
