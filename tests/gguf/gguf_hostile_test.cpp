// Damaged and malicious files: each must give one sentence, promptly, in little memory, and ggml's
// parser must never meet them (it would log, and in places abort).

#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "gguf/gguf_file.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace {

// What `new` has handed out since the last reset, and the largest single piece.
std::atomic<size_t> allocated_total{0};
std::atomic<size_t> allocated_largest{0};

void* watched_new(size_t size) {
    allocated_total += size;
    if (size > allocated_largest) allocated_largest = size;
    if (void* p = std::malloc(size)) return p;
    throw std::bad_alloc();
}

}  // namespace

// This program's `new`, ggml's included: length fields must not decide sizes.
void* operator new(size_t size) {
    return watched_new(size);
}
void* operator new[](size_t size) {
    return watched_new(size);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, size_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
    std::free(p);
}

namespace cellar {
namespace {

using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::raw;
using testing::ScratchFile;

// Opens files while counting ggml's log lines, and holds each answer to the rules.
class HostileFile : public ::testing::Test {
protected:
    HostileFile() {
        ggml_log_set([](ggml_log_level, const char*, void* lines) { ++*static_cast<int*>(lines); },
                     &lines_);
    }
    ~HostileFile() override { ggml_log_set(nullptr, nullptr); }

    // Memory is held to 64 times the file: ggml makes a 32-byte string of each 8-byte empty one,
    // twice, and a tensor of some 400 bytes of each directory entry of at least 33.
    Result<GgufFile> open(const ScratchFile& file, size_t size) {
        allocated_total = 0;
        allocated_largest = 0;
        auto opened = GgufFile::open(file.path());
        EXPECT_LE(allocated_largest, 64 * size + 65536);
        EXPECT_LE(allocated_total, 256 * size + 65536);
        EXPECT_EQ(lines_, 0) << "ggml complained";
        if (opened) return opened;
        const std::string& message = opened.error().message;
        EXPECT_EQ(opened.error().code, Code::kBadFile) << message;
        EXPECT_LT(message.size(), 400u);
        EXPECT_EQ(message.find('\n'), message.npos);
        return opened;
    }

    std::string sentence(const std::string& bytes) {
        const ScratchFile file(bytes);
        const auto opened = open(file, bytes.size());
        return opened ? "it opened" : opened.error().message;
    }

private:
    int lines_ = 0;
};

// Everything an accessor can be asked about `file`; only a crash fails.
void ask_everything(const GgufFile& file) {
    for (const char* key : {"general.architecture", "llama.block_count", "tokenizer.ggml.tokens",
                            "tokenizer.ggml.scores", "llama.rope.freq_base", "general.alignment",
                            "llama.attention.causal", "llama.rope.dimension_sections"}) {
        (void)file.find_string(key);
        (void)file.find_integer(key);
        (void)file.find_real(key);
        (void)file.find_boolean(key);
        (void)file.find_strings(key);
        (void)file.find_ints(key);
        (void)file.find_reals(key);
        (void)file.find_ints_per_layer(key, 4);
    }
    const size_t size = file.mapping()->bytes().size();
    for (const TensorInfo& tensor : file.tensors()) {
        ASSERT_LE(tensor.offset, size);
        ASSERT_LE(tensor.bytes, size - tensor.offset);
    }
}

class TinyLlama : public HostileFile {
protected:
    const std::string bytes_ = testing::read_file(CELLAR_TEST_DATA "/models/tiny-llama.gguf");
    const size_t metadata_ = 26528;              // bytes before the data
    const size_t end_ = metadata_ + 568320 + 4;  // of the last tensor, before its padding
};

TEST_F(TinyLlama, TruncatedAnywhereIsRefused) {
    const ScratchFile file(bytes_);
    const auto check = [&](size_t size) {
        file.truncate(size);
        const auto opened = open(file, size);
        ASSERT_EQ(opened.has_value(), size >= end_) << "at " << size;
    };
    for (size_t size = bytes_.size(); size > metadata_; size -= size > end_ ? 1 : 997)
        check(size);
    for (size_t size = metadata_; size > 0; --size)
        check(size);
}

TEST_F(TinyLlama, FlippedBitsNeverCrash) {
    const ScratchFile file(bytes_);
    for (size_t i = 0; i < metadata_; ++i) {
        const auto original = static_cast<unsigned char>(bytes_[i]);
        const auto changed = static_cast<unsigned char>(original ^ (1u << (i * 5 % 8)));
        file.patch(i, raw(changed));
        const auto opened = open(file, bytes_.size());
        if (opened && i % 16 == 0) ask_everything(*opened);
        if (HasFailure()) FAIL() << "byte " << i << " as " << int{changed};
        file.patch(i, raw(original));
    }
}

// A small file with a length field of every kind, and two f32 tensors.
GgufBytes small_file() {
    GgufBytes bytes;
    bytes.string("general.architecture", "llama")
        .scalar("general.alignment", GgufBytes::kU32, uint32_t{64})
        .array("bytes", GgufBytes::kU8, {uint8_t{1}, uint8_t{2}})
        .array("bools", GgufBytes::kBool, {int8_t{0}, int8_t{1}})
        .array("doubles", GgufBytes::kF64, {1.0, 2.0})
        .strings("words", {"one", ""})
        .tensor("a", {8, 2}, GGML_TYPE_F32, 0)
        .tensor("b", {4, 1, 1, 1}, GGML_TYPE_F32, 64);
    return bytes;
}

TEST_F(HostileFile, TheSmallFileIsSoundBeforeItIsDamaged) {
    EXPECT_EQ(sentence(small_file().bytes(std::string(80, 'x'), 64)), "it opened");
    EXPECT_GT(allocated_total, 0u) << "the watch on memory sees nothing";
}

TEST_F(HostileFile, NoLengthFieldIsBelieved) {
    const GgufBytes small = small_file();
    const std::string sound = small.bytes(std::string(80, 'x'), 64);
    for (const size_t place : small.lengths()) {
        for (const uint64_t length : {uint64_t{1} << 31, (uint64_t{1} << 31) - 1, uint64_t{1} << 32,
                                      uint64_t{1} << 61, uint64_t{1} << 63, (uint64_t{1} << 63) - 1,
                                      ~uint64_t{0}, uint64_t{1} << 24, uint64_t{16384}}) {
            std::string damaged = sound;
            damaged.replace(place, 8, raw(length));
            EXPECT_NE(sentence(damaged), "it opened") << length << " at byte " << place;
        }
    }
}

TEST_F(HostileFile, SparseZerosAreNotAHundredMillionStrings) {
    GgufBytes bytes;
    bytes.strings("words", {});
    std::string content = bytes.bytes();
    content.replace(content.size() - 8, 8, raw(uint64_t{100'000'000}));
    const ScratchFile file(content);
    file.truncate(size_t{4} << 30);  // zeros that take no room on the disk
    EXPECT_THAT(open(file, content.size()).error().message,
                HasSubstr("key 'words' announces an array of 100000000 elements"));
}

TEST_F(HostileFile, NamesCannotCommandATerminal) {
    GgufBytes bytes;
    bytes.string(std::string("\x1b[2J") + std::string(5000, 'k'), "v").string("x", "");
    std::string content = bytes.bytes();
    content.resize(content.size() - 4);
    content.replace(24 + 8 + 5004 + 4, 8, raw(uint64_t{1} << 20));
    const std::string message = sentence(content);
    EXPECT_THAT(message, HasSubstr("key '?[2Jkkk"));
    EXPECT_EQ(message.find('\x1b'), message.npos);
}

struct Case {
    const char* name;
    std::string bytes;
    const char* sentence;  // a part of it
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class HostileCase : public HostileFile, public ::testing::WithParamInterface<Case> {};

TEST_P(HostileCase, IsToldInOneSentence) {
    EXPECT_THAT(sentence(GetParam().bytes), HasSubstr(GetParam().sentence));
}

std::string with_tensor(std::initializer_list<int64_t> ne, int32_t type, uint64_t offset = 0) {
    return GgufBytes().tensor("t", ne, type, offset).bytes(std::string(64, 'x'));
}

std::string with_alignment(uint32_t alignment) {
    return GgufBytes()
        .scalar("general.alignment", GgufBytes::kU32, alignment)
        .tensor("t", {1}, GGML_TYPE_F32, 0)
        .bytes(std::string(64, 'x'));
}

std::vector<Case> cases() {
    const int64_t big = int64_t{1} << 40;
    return {
        {"NotGguf", "PK\3\4 a zip file of some kind", "this is not a GGUF file"},
        {"ThreeBytes", "GGU", "this is not a GGUF file"},
        {"BigEndian", "GGUF" + raw(uint32_t{0x03000000}) + std::string(40, '\0'), "big-endian"},
        {"Version0", GgufBytes().bytes({}, 32, 0), "GGUF version 0;"},
        {"Version1", GgufBytes().bytes({}, 32, 1), "GGUF version 1;"},
        {"Version4", GgufBytes().bytes({}, 32, 4), "GGUF version 4;"},
        {"HeaderOnly", "GGUF" + raw(uint32_t{3}), "the header needs 1 x 8 bytes at byte 8"},
        {"EmptyKey", GgufBytes().string("", "x").bytes(), "key 0 has an empty name"},
        {"KeyWithNul", GgufBytes().string(std::string("a\0b", 3), "x").bytes(), "NUL byte"},
        {"DuplicateKey", GgufBytes().string("k", "x").string("k", "y").bytes(),
         "key 1 is there twice: 'k'"},
        {"UnknownKeyType", GgufBytes().scalar("k", GgufBytes::Type{13}, 1).bytes(),
         "key 'k' has the unknown type 13"},
        {"ArrayOfArrays", GgufBytes().array("k", GgufBytes::kArray, {1}).bytes(),
         "key 'k' has the unknown type 9"},
        {"AlignmentZero", with_alignment(0), "not a power of two"},
        {"AlignmentThree", with_alignment(3), "is 3, which is not a power of two"},
        {"AlignmentHuge", with_alignment(uint32_t{1} << 31), "would end at byte 2147483652"},
        {"AlignmentOfAnotherType",
         GgufBytes().scalar("general.alignment", GgufBytes::kU64, uint64_t{32}).bytes(), "not u32"},
        {"AlignmentArray",
         GgufBytes().array("general.alignment", GgufBytes::kU32, {uint32_t{32}}).bytes(),
         "not u32"},
        {"DuplicateTensor",
         GgufBytes().tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 32).bytes(std::string(64, 'x')),
         "tensor 1 is there twice: 't'"},
        {"LongTensorName",
         GgufBytes().tensor(std::string(64, 'n'), {1}, 0, 0).bytes(std::string(64, 'x')),
         "a name of 64 bytes"},
        {"FiveDimensions", with_tensor({1, 1, 1, 1, 1}, GGML_TYPE_F32), "has 5 dimensions"},
        {"NoElements", with_tensor({4, 0}, GGML_TYPE_F32), "0 elements in dimension 1"},
        {"NegativeDimension", with_tensor({-4}, GGML_TYPE_F32), "-4 elements in dimension 0"},
        {"OverflowingShape", with_tensor({big, big}, GGML_TYPE_F32), "more than 2^63 elements"},
        {"LargerThanTheFile", with_tensor({1 << 20}, GGML_TYPE_F32), "1048576 blocks of 4 bytes"},
        {"BeyondTheFile", with_tensor({17}, GGML_TYPE_F32), "tensor 't' would end at byte"},
        {"UnknownTensorType", with_tensor({4}, 1000), "has type 1000"},
        {"NegativeTensorType", with_tensor({4}, -1), "has type -1"},
        {"DroppedTensorType", with_tensor({4}, 4), "has type 4"},
        {"RowNoMultipleOfBlock", with_tensor({33}, GGML_TYPE_Q8_0), "rows of 33 elements"},
        {"TensorElsewhere", with_tensor({4}, GGML_TYPE_F32, 32), "begins at byte 32"},
        {"OverlappingTensors",
         GgufBytes().tensor("s", {4}, 0, 0).tensor("t", {4}, 0, 0).bytes(std::string(64, 'x')),
         "tensor 't' begins at byte 0 of the data, but 32 follows"},
    };
}

INSTANTIATE_TEST_SUITE_P(Files, HostileCase, ::testing::ValuesIn(cases()),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace cellar
