#include "model/model.h"

#include <gtest/gtest.h>

#include "gguf/gguf_file.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using testing::GgufBytes;
using testing::ScratchFile;

TEST(ModelTest, InfoDescribesTheModelToItsMemory) {
    auto file = GgufFile::open(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    ASSERT_TRUE(file) << file.error().message;
    float progress = 0;
    LoadOptions options;
    options.progress = [&](float fraction) { progress = fraction; };
    auto model = load_model(*file, options);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(progress, 1.0f);
    const ModelInfo& info = (*model)->info();
    EXPECT_EQ(info.architecture, "llama");
    EXPECT_EQ(info.n_vocab, 128U);
    EXPECT_EQ(info.n_embd, 64U);
    EXPECT_EQ(info.n_ctx_train, 256U);
    EXPECT_GT(info.weight_bytes, 0U);
    ASSERT_EQ(info.layers.size(), 4U);
    for (const LayerKv& layer : info.layers) {
        EXPECT_EQ(layer.group, 0U);
        EXPECT_EQ(layer.n_head_kv, 2U);
        EXPECT_EQ(layer.head_dim_k, 16U);
        EXPECT_EQ(layer.head_dim_v, 16U);
    }
}

TEST(ModelTest, UnknownArchitectureIsNamedBesideTheKnownOnes) {
    const ScratchFile scratch(GgufBytes().string("general.architecture", "perceptron").bytes());
    auto file = GgufFile::open(scratch.path());
    ASSERT_TRUE(file) << file.error().message;
    auto model = load_model(*file, {});
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, Code::kUnsupported);
    EXPECT_NE(model.error().message.find("perceptron"), std::string::npos);
    EXPECT_NE(model.error().message.find("llama"), std::string::npos);
}

TEST(ModelTest, FileWithoutArchitectureIsBad) {
    const ScratchFile scratch(GgufBytes().string("general.name", "nothing").bytes());
    auto file = GgufFile::open(scratch.path());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(load_model(*file, {}).error().code, Code::kBadFile);
}

}  // namespace
}  // namespace cellar
