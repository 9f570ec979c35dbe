#include "engine/model_identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/decoding.h"
#include "engine/sha256.h"

namespace cellar {
namespace {

using testing::read_file;
using testing::ScratchFile;

const std::string kTinyLlama = CELLAR_TEST_DATA "/models/tiny-llama.gguf";

GgufFile open(const std::filesystem::path& path) {
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    return *std::move(file);
}

// The tiny model's bytes with the first `from` behind `key` replaced by as many others.
std::string edited(std::string_view key, std::string_view from, std::string_view to) {
    std::string bytes = read_file(kTinyLlama);
    const size_t at = bytes.find(from, bytes.find(key));
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(from.size(), to.size());
    return bytes.replace(at, from.size(), to);
}

// Changes a bit of the last tensor; padding may follow it.
void flip_last_weight(std::string& bytes) {
    const TensorInfo tensor = open(kTinyLlama).tensors().back();
    bytes[tensor.offset + tensor.bytes - 1] ^= 1;
}

FileDigests digests_of(const std::string& bytes) {
    const ScratchFile scratch(bytes);
    return digest_file(open(scratch.path()));
}

TEST(Sha256Test, IsTheStandardsOne) {
    Sha256 sha;
    const std::string_view text = "abc";
    sha.add(std::as_bytes(std::span(text)));
    EXPECT_EQ(to_hex(sha.finish()),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, TextsCannotBeCutInAnotherWay) {
    Sha256 one, other;
    one.add_text("ab");
    one.add_text("c");
    other.add_text("a");
    other.add_text("bc");
    EXPECT_NE(one.finish(), other.finish());
}

TEST(ModelIdentityTest, AnyBitOfAnyTensorIsAnotherModel) {
    std::string bytes = read_file(kTinyLlama);
    const FileDigests before = digests_of(bytes);
    flip_last_weight(bytes);
    const FileDigests after = digests_of(bytes);
    EXPECT_NE(after.weights, before.weights);
    EXPECT_EQ(after.tokenizer, before.tokenizer);
}

TEST(ModelIdentityTest, HyperparametersCountAndTitlesDoNot) {
    const FileDigests before = digests_of(read_file(kTinyLlama));
    const auto file = open(kTinyLlama);
    const std::string name(*file.string("general.name"));
    std::string other = name;
    other[0] = other[0] == 'x' ? 'y' : 'x';
    EXPECT_EQ(digests_of(edited("general.name", name, other)).weights, before.weights);

    const std::string key = "llama.attention.layer_norm_rms_epsilon";
    std::string bytes = read_file(kTinyLlama);
    bytes[bytes.find(key) + key.size() + 4] ^= 1;  // the lowest bit of the float behind its type
    EXPECT_NE(digests_of(bytes).weights, before.weights);
}

TEST(ModelIdentityTest, RopeSettingsHaveTheirOwnDigest) {
    const auto file = open(kTinyLlama);
    LoadOptions options;
    const auto plain = load_model(file, options);
    options.rope.freq_base = 12345.0f;
    const auto turned = load_model(file, options);
    ASSERT_TRUE(plain && turned);
    const Identity a = identify(file, **plain, 512, {}), b = identify(file, **turned, 512, {});
    EXPECT_NE(a.rope, b.rope);
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a, identify(file, **plain, 512, {}));
}

class DigestMemoTest : public ::testing::Test {
protected:
    DigestMemoTest()
        : folder_(std::filesystem::temp_directory_path() /
                  ("cellar-memo-" + std::to_string(::getpid()))),
          memo_(folder_ / "a" / "b") {}
    ~DigestMemoTest() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path only_memo() const {
        std::vector<std::filesystem::path> found;
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / "a" / "b")) {
            found.push_back(entry.path());
        }
        EXPECT_EQ(found.size(), 1u);
        return found.front();
    }

    const std::filesystem::path folder_;
    const DigestMemo memo_;
};

// What is remembered is seen by remembering something else.
TEST_F(DigestMemoTest, AFileThatWasNotTouchedIsNotReadAgain) {
    const ScratchFile scratch(read_file(kTinyLlama));
    const FileDigests real = memo_.digests(open(scratch.path()));
    EXPECT_EQ(real.weights, digest_file(open(scratch.path())).weights);
    std::string text = read_file(only_memo());
    const std::string hex = to_hex(real.weights);
    text.replace(text.find(hex), hex.size(), std::string(hex.size(), '0'));
    std::ofstream(only_memo()) << text;
    EXPECT_EQ(memo_.digests(open(scratch.path())).weights, Digest{});
}

TEST_F(DigestMemoTest, AFileThatChangedIsReadAgain) {
    std::string bytes = read_file(kTinyLlama);
    const ScratchFile scratch(bytes);
    const FileDigests before = memo_.digests(open(scratch.path()));
    flip_last_weight(bytes);
    scratch.write(bytes);
    std::filesystem::last_write_time(
        scratch.path(), std::filesystem::last_write_time(scratch.path()) + std::chrono::seconds(1));
    EXPECT_NE(memo_.digests(open(scratch.path())).weights, before.weights);
}

TEST_F(DigestMemoTest, DamagedOrForbiddenMemosCostTimeOnly) {
    const ScratchFile scratch(read_file(kTinyLlama));
    const FileDigests real = memo_.digests(open(scratch.path()));
    const std::string text = read_file(only_memo());
    for (size_t cut = 0; cut < text.size(); cut += 20) {
        std::ofstream(only_memo()) << text.substr(0, cut);
        EXPECT_EQ(memo_.digests(open(scratch.path())).weights, real.weights);
    }
    const ScratchFile no_folder("");
    EXPECT_EQ(DigestMemo(no_folder.path()).digests(open(scratch.path())).weights, real.weights);
}

}  // namespace
}  // namespace cellar
