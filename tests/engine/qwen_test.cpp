// What the expected logits do not show of qwen2 and qwen3.
//
// No tiny model of architecture qwen2 is at hand. But it is `llama` with halves of a head turned
// against each other where llama turns neighbours: with the rows of queries and keys in another
// order, tiny-llama is a qwen2 of the same logits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
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
using testing::tensor_entry;

constexpr const char* kTinyLlama = CELLAR_TEST_DATA "/models/tiny-llama.gguf";
constexpr uint32_t kHeadDim = 16;

// The bytes of a GGUF file of f32 tensors, to be changed in place.
class Editable {
public:
    explicit Editable(const std::string& path)
        : bytes_(testing::read_file(path)), file_(std::move(*GgufFile::open(path))) {}

    // Names of keys begin with the architecture's, and both names have five letters.
    void name_it_qwen2() {
        size_t place = 0;
        while ((place = bytes_.find("llama", place)) < file_.tensors().front().offset)
            bytes_.replace(place, 5, "qwen2");
    }

    // Lays out each head's rows 0, 2, 4, ... 1, 3, 5, ...
    void split_heads(const std::string& name) {
        const TensorInfo& info = *file_.find_tensor(name);
        const size_t n_rows = static_cast<size_t>(info.ne[1] > 1 ? info.ne[1] : info.ne[0]);
        const size_t row_bytes = info.bytes / n_rows;
        const std::string old = bytes_.substr(info.offset, info.bytes);
        for (size_t row = 0; row < n_rows; row++) {
            const size_t in_head = row % kHeadDim;
            const size_t to = row - in_head + in_head / 2 + in_head % 2 * (kHeadDim / 2);
            old.copy(bytes_.data() + info.offset + to * row_bytes, row_bytes, row * row_bytes);
        }
    }

    void zero(const std::string& name) {
        const TensorInfo& info = *file_.find_tensor(name);
        std::memset(bytes_.data() + info.offset, 0, info.bytes);
    }

    const std::string& bytes() const { return bytes_; }

private:
    std::string bytes_;
    GgufFile file_;
};

std::string layer_tensor(int layer, std::string_view name) {
    return "blk." + std::to_string(layer) + "." + std::string(name);
}

Editable tiny_qwen2() {
    Editable file(kTinyLlama);
    file.name_it_qwen2();
    for (int layer = 0; layer < 4; layer++) {
        for (const char* name : {"attn_q.weight", "attn_q.bias", "attn_k.weight", "attn_k.bias"})
            file.split_heads(layer_tensor(layer, name));
    }
    return file;
}

// Logits behind 64 tokens, of which 16 go and the rest moves up, and one more token.
Row logits(const Model& model) {
    DecoderOptions options;
    options.n_cells = 256;
    options.type_k = options.type_v = KvType::kF32;
    Decoding decoding(model, options);
    std::vector<Token> tokens(64);
    std::generate(tokens.begin(), tokens.end(), [n = 0]() mutable { return n++ * 7 % 128; });
    decoding.append(SeqId{0}, tokens);
    EXPECT_TRUE(decoding.memory().seq_rm(SeqId{0}, 8, 24));
    EXPECT_TRUE(decoding.memory().seq_add(SeqId{0}, 24, -1, -16));
    return decoding.append(SeqId{0}, {5});
}

// Only the order of sums differs.
TEST(Qwen2Test, HasTheLogitsOfALlamaWhoseHeadsAreLaidOutInHalves) {
    const auto model = load_model_of(tiny_qwen2().bytes());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->info().architecture, "qwen2");
    EXPECT_LE(max_difference(logits(**model), logits(testing::tiny_llama())), 1e-5f);
}

TEST(Qwen2Test, AddsTheBiasesOfQueriesKeysAndValues) {
    const Row right = logits(testing::tiny_llama());
    for (const char* name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"}) {
        Editable file = tiny_qwen2();
        for (int layer = 0; layer < 4; layer++)
            file.zero(layer_tensor(layer, name));
        const auto model = load_model_of(file.bytes());
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_GT(max_difference(logits(**model), right), 1e-4f) << name;
    }
}

// The file with `from` overwritten by `to` is refused with a sentence that has `part` in it.
void expect_refused(const std::string& bytes, std::string_view from, std::string_view to,
                    std::string_view part) {
    const auto model = load_model_of(testing::patched(bytes, from, to));
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, Code::kBadFile);
    EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
}

TEST(Qwen2Test, RefusesMissingAndMisshapenTensors) {
    const std::string bytes = tiny_qwen2().bytes();
    expect_refused(bytes, "blk.2.attn_k.weight", "blk.2.attn_X.weight",
                   "tensor 'blk.2.attn_k.weight' of shape [64, 32] is missing");
    expect_refused(bytes, tensor_entry("blk.1.attn_k.bias", {32}, 0),
                   tensor_entry("blk.1.attn_k.bias", {31}, 0),
                   "'blk.1.attn_k.bias' has shape [31]");
}

TEST(Qwen3Test, RefusesMissingAndMisshapenNormsOfHeads) {
    const std::string bytes = testing::read_file(CELLAR_TEST_DATA "/models/tiny-qwen3.gguf");
    expect_refused(bytes, "blk.3.attn_q_norm.weight", "blk.3.attn_X_norm.weight",
                   "tensor 'blk.3.attn_q_norm.weight' of shape [16] is missing");
    expect_refused(bytes, tensor_entry("blk.0.attn_k_norm.weight", {16}, 0),
                   tensor_entry("blk.0.attn_k_norm.weight", {15}, 0),
                   "'blk.0.attn_k_norm.weight' has shape [15]");
}

}  // namespace
}  // namespace cellar
