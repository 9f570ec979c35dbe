#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/weights.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using ::testing::EndsWith;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::ScratchFile;

// The numbers 0, 1, 2, ... as f32 bytes.
std::string counting(size_t n) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), 0.0f);
    return {reinterpret_cast<const char*>(values.data()), n * sizeof(float)};
}

GgufFile open(const std::string& bytes) {
    const ScratchFile scratch(bytes);
    auto file = GgufFile::open(scratch.path());
    if (!file) throw std::runtime_error(file.error().message);
    return std::move(*file);
}

// matrix [8, 4] f32 counts from 0, vector [16] f32 from 32, ids [8] are i32.
GgufFile small_file() {
    return open(GgufBytes()
                    .tensor("matrix", {8, 4}, GGML_TYPE_F32, 0)
                    .tensor("vector", {16}, GGML_TYPE_F32, 128)
                    .tensor("ids", {8}, GGML_TYPE_I32, 192)
                    .bytes(counting(64)));
}

std::vector<float> values_of(const ggml_tensor* tensor) {
    std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
    return values;
}

TEST(WeightsLoader, TensorsLieInTheMappedFile) {
    const GgufFile file = small_file();
    WeightsLoader loader(file);
    ggml_tensor* matrix = loader.require("matrix", {8, 4}, Use::kMulMat);
    ggml_tensor* vector = loader.require("vector", {16}, Use::kMul);
    const auto weights = std::move(loader).load();
    ASSERT_TRUE(weights.has_value()) << weights.error().message;

    const std::byte* base = file.mapping()->bytes().data();
    EXPECT_EQ(static_cast<void*>(matrix->data), base + file.find_tensor("matrix")->offset);
    EXPECT_EQ(values_of(matrix)[9], 9.0f);
    EXPECT_EQ(values_of(vector)[15], 47.0f);
    EXPECT_STREQ(ggml_get_name(vector), "vector");
    EXPECT_EQ(ggml_backend_buffer_get_usage(matrix->buffer), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    EXPECT_EQ(weights->bytes_mapped(), 128u + 64u);
    EXPECT_EQ(weights->bytes(), weights->bytes_mapped());
}

TEST(WeightsLoader, WeightsOutliveTheFileAndItsName) {
    std::optional<Weights> weights;
    ggml_tensor* vector = nullptr;
    {
        const GgufFile file = small_file();
        WeightsLoader loader(file);
        vector = loader.require("vector", {16}, Use::kMul);
        weights.emplace(std::move(loader).load().value());
    }
    EXPECT_EQ(values_of(vector)[0], 32.0f);
}

TEST(WeightsLoader, WithoutMmapEverythingIsCopied) {
    const GgufFile file = small_file();
    WeightsLoader loader(file, {.use_mmap = false});
    ggml_tensor* vector = loader.require("vector", {16}, Use::kMul);
    const auto weights = std::move(loader).load();
    ASSERT_TRUE(weights.has_value());
    EXPECT_EQ(values_of(vector)[15], 47.0f);
    EXPECT_EQ(weights->bytes_mapped(), 0u);
    EXPECT_GE(weights->bytes_copied(), 64u);
}

// A file may align tensors to less than ggml's kernels rely on.
TEST(WeightsLoader, UnalignedTensorsAreCopied) {
    const GgufFile file = open(GgufBytes()
                                   .scalar("general.alignment", GgufBytes::kU32, uint32_t{4})
                                   .tensor("a", {3}, GGML_TYPE_F32, 0)
                                   .tensor("b", {8}, GGML_TYPE_F32, 12)
                                   .tensor("c", {8}, GGML_TYPE_F32, 44)
                                   .bytes(counting(19), 4));
    WeightsLoader loader(file);
    std::vector<ggml_tensor*> tensors;
    tensors.push_back(loader.require("a", {3}, Use::kMul));
    tensors.push_back(loader.require("b", {8}, Use::kMul));
    tensors.push_back(loader.require("c", {8}, Use::kMul));
    const auto weights = std::move(loader).load();
    ASSERT_TRUE(weights.has_value());
    EXPECT_GT(weights->bytes_copied(), 0u);
    for (const ggml_tensor* tensor : tensors) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 32, 0u);
    }
    EXPECT_EQ(values_of(tensors[1])[0], 3.0f);
    EXPECT_EQ(values_of(tensors[2])[7], 18.0f);
}

TEST(WeightsLoader, OneTensorServesTwoUsesThatShareItsMemory) {
    const GgufFile file = small_file();
    WeightsLoader loader(file);
    ggml_tensor* table = loader.require("matrix", {8, 4}, Use::kGetRows);
    EXPECT_EQ(table, loader.require("matrix", {8, 4}, Use::kMulMat));
    EXPECT_EQ(std::move(loader).load()->bytes_mapped(), 128u);
}

TEST(WeightsLoader, AbsentTensorsAreNullOrRefused) {
    const GgufFile file = small_file();
    WeightsLoader optional(file);
    EXPECT_TRUE(optional.has("vector"));
    EXPECT_FALSE(optional.has("bias"));
    EXPECT_EQ(optional.find("bias", {16}, Use::kAdd), nullptr);
    EXPECT_TRUE(std::move(optional).load().has_value());

    WeightsLoader needed(file);
    EXPECT_EQ(needed.require("bias", {16, 2}, Use::kAdd), nullptr);
    const auto refused = std::move(needed).load();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kBadFile);
    EXPECT_THAT(refused.error().message, EndsWith("tensor 'bias' of shape [16, 2] is missing"));
}

TEST(WeightsLoader, AnotherShapeIsRefusedWithBothShapes) {
    const GgufFile file = small_file();
    WeightsLoader loader(file);
    loader.find("matrix", {4, 8}, Use::kMulMat);
    const auto refused = std::move(loader).load();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kBadFile);
    EXPECT_THAT(refused.error().message,
                EndsWith("tensor 'matrix' has shape [8, 4] where [4, 8] is expected"));
}

TEST(WeightsLoader, TheFirstProblemIsTheOneTold) {
    const GgufFile file = small_file();
    WeightsLoader loader(file);
    loader.require("first", {1}, Use::kMul);
    loader.require("second", {1}, Use::kMul);
    EXPECT_THAT(std::move(loader).load().error().message, HasSubstr("'first'"));
}

// ggml's CPU kernels abort on these, though its `supports_op` says yes.
TEST(WeightsLoader, TypesThatNoKernelReadsAreRefused) {
    const GgufFile file = small_file();
    for (const Use use : {Use::kMulMat, Use::kGetRows, Use::kAdd, Use::kMul, Use::kRope}) {
        WeightsLoader loader(file);
        loader.require("ids", {8}, use);
        const auto refused = std::move(loader).load();
        ASSERT_FALSE(refused.has_value()) << to_string(use);
        EXPECT_EQ(refused.error().code, Code::kUnsupported);
        EXPECT_THAT(refused.error().message, HasSubstr("tensor 'ids' has type i32"));
    }
    EXPECT_FALSE(usable(GGML_TYPE_Q8_K, Use::kMulMat));
    EXPECT_FALSE(usable(GGML_TYPE_Q8_1, Use::kGetRows));
    EXPECT_FALSE(usable(GGML_TYPE_F16, Use::kMul));
    EXPECT_TRUE(usable(GGML_TYPE_F16, Use::kMulMat));
}

TEST(WeightsLoader, ProgressEndsAtOneAndCanCancel) {
    const GgufFile file = small_file();
    std::vector<double> fractions;
    WeightsLoader loader(file);
    loader.require("matrix", {8, 4}, Use::kMulMat);
    loader.require("vector", {16}, Use::kMul);
    ASSERT_TRUE(std::move(loader).load([&](double fraction) {
        fractions.push_back(fraction);
        return true;
    }));
    EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
    EXPECT_EQ(fractions.back(), 1.0);

    WeightsLoader cancelled(file);
    cancelled.require("matrix", {8, 4}, Use::kMulMat);
    const auto refused = std::move(cancelled).load([](double) { return false; });
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace cellar
