#include "gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using ::testing::ElementsAre;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::ScratchFile;

GgufFile open_tiny_llama() {
    auto file = GgufFile::open(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    if (!file) throw std::runtime_error(file.error().message);
    return std::move(*file);
}

// One key of each kind, opened from a scratch file.
class Metadata : public ::testing::Test {
protected:
    Metadata() {
        GgufBytes bytes;
        bytes.scalar("u8", GgufBytes::kU8, uint8_t{200})
            .scalar("i8", GgufBytes::kI8, int8_t{-3})
            .scalar("u64", GgufBytes::kU64, uint64_t{1} << 40)
            .scalar("huge", GgufBytes::kU64, std::numeric_limits<uint64_t>::max())
            .scalar("f32", GgufBytes::kF32, 0.5f)
            .scalar("f64", GgufBytes::kF64, 0.25)
            .scalar("yes", GgufBytes::kBool, int8_t{1})
            .scalar("odd bool", GgufBytes::kBool, int8_t{7})
            .string("text", "hello")
            .array("ints", GgufBytes::kU16, {uint16_t{1}, uint16_t{2}, uint16_t{3}})
            .array("wide", GgufBytes::kI64, {int64_t{1} << 40})
            .array("bools", GgufBytes::kBool, {int8_t{1}, int8_t{0}})
            .array("reals", GgufBytes::kF64, {1.5, -2.0})
            .array<int32_t>("none", GgufBytes::kI32, {})
            .strings("words", {"a", "", "bc"});
        const ScratchFile scratch(bytes.bytes());
        auto opened = GgufFile::open(scratch.path());
        if (!opened) throw std::runtime_error(opened.error().message);
        file_.emplace(std::move(*opened));
    }

    const GgufFile& file() const { return *file_; }

private:
    std::optional<GgufFile> file_;
};

TEST_F(Metadata, IntegersOfEveryWidth) {
    EXPECT_EQ(file().integer("u8"), 200);
    EXPECT_EQ(file().integer("i8"), -3);
    EXPECT_EQ(file().integer("u64"), int64_t{1} << 40);
    EXPECT_THAT(file().integer("huge").error().message, HasSubstr("'huge' is out of range"));
    EXPECT_THAT(file().integer("f32").error().message, HasSubstr("an integer is expected"));
    EXPECT_THAT(file().integer("yes").error().message, HasSubstr("is a bool"));
}

TEST_F(Metadata, RealsTakeIntegersToo) {
    EXPECT_EQ(file().real("f32"), 0.5);
    EXPECT_EQ(file().real("f64"), 0.25);
    EXPECT_EQ(file().real("i8"), -3.0);
    EXPECT_FALSE(file().real("text").has_value());
    EXPECT_FALSE(file().real("reals").has_value());
}

TEST_F(Metadata, StringsAndBools) {
    EXPECT_EQ(file().string("text"), "hello");
    EXPECT_EQ(file().boolean("yes"), true);
    EXPECT_EQ(file().boolean("odd bool"), true);
    EXPECT_THAT(file().string("words").error().message, HasSubstr("an array of 3 str"));
    EXPECT_FALSE(file().boolean("u8").has_value());
}

TEST_F(Metadata, Arrays) {
    EXPECT_THAT(*file().ints("ints"), ElementsAre(1, 2, 3));
    EXPECT_THAT(*file().ints("bools"), ElementsAre(1, 0));
    EXPECT_THAT(*file().ints("none"), ElementsAre());
    EXPECT_THAT(*file().reals("reals"), ElementsAre(1.5f, -2.0f));
    EXPECT_THAT(*file().strings("words"), ElementsAre("a", "", "bc"));
    EXPECT_THAT(file().ints("wide").error().message, HasSubstr("element 0 of key 'wide'"));
    EXPECT_FALSE(file().ints("u8").has_value());
    EXPECT_FALSE(file().strings("text").has_value());
    EXPECT_FALSE(file().reals("ints").has_value());
}

TEST_F(Metadata, PerLayerValuesFromArrayOrScalar) {
    EXPECT_THAT(*file().ints_per_layer("ints", 3), ElementsAre(1, 2, 3));
    EXPECT_THAT(*file().ints_per_layer("u8", 2), ElementsAre(200, 200));
    EXPECT_THAT(file().ints_per_layer("ints", 4).error().message, HasSubstr("an array of 4"));
    EXPECT_FALSE(file().ints_per_layer("f32", 2).has_value());
}

TEST_F(Metadata, AbsenceIsNulloptOrAnErrorThatNamesTheKey) {
    EXPECT_FALSE(file().has("absent"));
    EXPECT_TRUE(file().has("text"));
    EXPECT_EQ(file().find_integer("absent"), std::nullopt);
    EXPECT_EQ(file().find_ints("absent"), std::nullopt);
    const auto missing = file().integer("absent");
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, Code::kBadFile);
    EXPECT_THAT(missing.error().message, HasSubstr("key 'absent' is missing"));
}

TEST_F(Metadata, WrongTypeIsAnErrorInTheOptionalFormToo) {
    EXPECT_FALSE(file().find_integer("text").has_value());
    EXPECT_FALSE(file().find_string("u8").has_value());
    EXPECT_FALSE(file().find_real("text").has_value());
    EXPECT_FALSE(file().find_boolean("text").has_value());
    EXPECT_FALSE(file().find_strings("ints").has_value());
    EXPECT_FALSE(file().find_reals("text").has_value());
    EXPECT_FALSE(file().find_ints_per_layer("text", 1).has_value());
}

TEST(GgufFile, ReadsTinyLlama) {
    const GgufFile file = open_tiny_llama();
    EXPECT_EQ(file.string("general.architecture"), "llama");
    EXPECT_EQ(file.integer("llama.block_count"), 4);
    EXPECT_NEAR(*file.real("llama.attention.layer_norm_rms_epsilon"), 1e-5, 1e-12);
    EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->size(), 128u);
    EXPECT_EQ(file.tensors().size(), 124u);
}

TEST(GgufFile, DirectoryGivesShapeAndPlace) {
    const GgufFile file = open_tiny_llama();
    const TensorInfo* gate = file.find_tensor("blk.1.ffn_gate.weight");
    ASSERT_NE(gate, nullptr);
    EXPECT_EQ(gate->name, "blk.1.ffn_gate.weight");
    EXPECT_EQ(gate->type, GGML_TYPE_F32);
    EXPECT_THAT(gate->ne, ElementsAre(64, 96, 1, 1));
    EXPECT_EQ(gate->bytes, 64u * 96 * 4);
    EXPECT_EQ(gate->offset, 26528u + 241888);  // 26528: where this file's data begins
    EXPECT_EQ(file.find_tensor("blk.9.ffn_gate.weight"), nullptr);
}

TEST(GgufFile, TensorBytesLieInTheMapping) {
    const GgufFile file = open_tiny_llama();
    const std::string whole = testing::read_file(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    const TensorInfo* scale = file.find_tensor("blk.0.attn_q.scale");
    ASSERT_NE(scale, nullptr);
    const auto bytes = file.mapping()->bytes();
    ASSERT_EQ(bytes.size(), whole.size());
    EXPECT_EQ(0, std::memcmp(bytes.data() + scale->offset, whole.data() + scale->offset, 4));
}

TEST(GgufFile, ViewsSurviveAMove) {
    GgufFile first = open_tiny_llama();
    const std::string_view architecture = *first.string("general.architecture");
    const TensorInfo* norm = first.find_tensor("output_norm.weight");
    const GgufFile second = std::move(first);
    EXPECT_EQ(architecture, "llama");
    EXPECT_EQ(norm, second.find_tensor("output_norm.weight"));
}

TEST(GgufFile, WhatCannotBeOpenedSaysWhy) {
    const auto absent = GgufFile::open("/nonexistent/model.gguf");
    ASSERT_FALSE(absent.has_value());
    EXPECT_EQ(absent.error().code, Code::kIo);
    EXPECT_THAT(absent.error().message,
                HasSubstr("/nonexistent/model.gguf: cannot open it: No such"));

    const auto folder = GgufFile::open("/tmp");
    ASSERT_FALSE(folder.has_value());
    EXPECT_EQ(folder.error().message, "/tmp: this is not a regular file");

    const ScratchFile empty("");
    const auto nothing = GgufFile::open(empty.path());
    ASSERT_FALSE(nothing.has_value());
    EXPECT_THAT(nothing.error().message, HasSubstr("the file is empty"));
}

TEST(MappedFile, PrefetchAndReleaseChangeNoByte) {
    const std::string content(100'000, 'x');
    const ScratchFile scratch(content);
    const auto file = MappedFile::open(scratch.path());
    ASSERT_TRUE(file.has_value());
    (*file)->prefetch(10, 50'000);
    (*file)->release(10, 90'000);
    (*file)->release(99'000, 1'000'000);
    (*file)->prefetch(1'000'000, 5);
    const auto bytes = (*file)->bytes();
    EXPECT_EQ(0, std::memcmp(bytes.data(), content.data(), content.size()));
}

}  // namespace
}  // namespace cellar
