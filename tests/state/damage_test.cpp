// R13: damaged states are refused and change nothing.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "state/allocations.h"
#include "state/bytes.h"
#include "state/chunk_layout.h"
#include "state/inspection.h"
#include "state/state_rig.h"

namespace cellar::testing {
namespace {

// Messages and the like: what does not depend on the bytes. Audits of debug builds take a pool's.
#ifdef NDEBUG
constexpr size_t kFixedBytes = 1024;
#else
constexpr size_t kFixedBytes = 8192;
#endif

RigOptions small_options(size_t kind) {
    RigOptions options;
    options.kind = state_kinds()[kind];
    options.page_size = 4;
    options.n_cells = 64;
    for (LayerKv& layer : options.kind.layers) {
        if (layer.keeps_none()) continue;
        layer = {layer.group, 1, layer.head_dim_k == 6 ? 2u : 8u, 8u, layer.shares};
    }
    return options;
}

// By kind of group.
class R13 : public ::testing::TestWithParam<size_t> {
protected:
    void SetUp() override {
        rig_.append(0, 9, true);
        rig_.append(0, 4);
        ASSERT_TRUE(rig_->seq_cp(SeqId{0}, SeqId{1}, -1, -1));
        rig_.append(1, 3);
        good_ = save(rig_);
        rig_.append(0, 2);
        rig_.append(2, 5);
        before_ = hashes();
        poison(*rig_);
    }

    std::vector<uint64_t> hashes() const { return {rig_.hash(0), rig_.hash(1), rig_.hash(2)}; }

    // The bytes must be refused, and neither allocate wildly nor leave a trace.
    void expect_refused(std::span<const std::byte> bytes, const std::string& what) {
        MemorySource source(bytes);
        forget_allocations();
        const auto loaded = load_state(*rig_, test_identity(), source, {});
        EXPECT_LE(greatest_allocation(), 2 * bytes.size() + kFixedBytes) << what;
        EXPECT_FALSE(loaded) << what;
        EXPECT_FALSE(rig_->cells().busy());
        if (loaded || hashes() != before_) FAIL() << "a sequence changed: " << what;
    }

    void expect_still_works() {
        EXPECT_EQ(hashes(), before_);
        rig_.expect_sound();
        ASSERT_TRUE(load(rig_, good_));
        StateRig fresh(small_options(GetParam()));
        ASSERT_TRUE(load(fresh, good_));
        EXPECT_EQ(rig_.hash(0), fresh.hash(0));
        EXPECT_EQ(rig_.hash(1), fresh.hash(1));
        rig_.append(0, 6);
        rig_.expect_sound();
        ASSERT_TRUE(rig_->seq_rm(kEverySeq, -1, -1));
        for (uint32_t g = 0; g < rig_->cells().n_groups(); g++)
            EXPECT_EQ(rig_->cells().pool(g).n_free(), rig_->cells().pool(g).n_pages());
    }

    size_t head_size() const {
        ChunkHeader header;
        std::memcpy(&header, good_.data() + sizeof(Preamble), sizeof header);
        return header.stored;
    }
    std::vector<std::byte> head() const {
        const auto begin = good_.begin() + sizeof(Preamble) + kHeaderBytes;
        return {begin, begin + static_cast<ptrdiff_t>(head_size())};
    }
    // The state with another head, whose checksum is right.
    std::vector<std::byte> with_head(const std::vector<std::byte>& head) const {
        std::vector<std::byte> bytes(good_.begin(), good_.begin() + sizeof(Preamble));
        ChunkHeader header;
        header.stored = head.size();
        ByteWriter out;
        out.put(header);
        out.put(checksum_of(header, head, 0));
        out.put_all(std::span<const std::byte>(head));
        bytes.insert(bytes.end(), out.bytes().begin(), out.bytes().end());
        const size_t data = sizeof(Preamble) + kHeaderBytes + head_size();
        bytes.insert(bytes.end(), good_.begin() + static_cast<ptrdiff_t>(data), good_.end());
        return bytes;
    }

    StateRig rig_{small_options(GetParam())};
    std::vector<std::byte> good_;
    std::vector<uint64_t> before_;
};

TEST_P(R13, CutAnywhere) {
    for (size_t n = 0; n < good_.size(); n++)
        expect_refused(std::span(good_).first(n), fmt::format("cut at {}", n));
    expect_still_works();
}

TEST_P(R13, AnyBitFlipped) {
    std::vector<std::byte> bytes = good_;
    for (size_t i = 0; i < bytes.size(); i++) {
        const std::byte bit{static_cast<uint8_t>(1u << (i * 5 % 8))};
        bytes[i] ^= bit;
        expect_refused(bytes, fmt::format("a bit of byte {} flipped", i));
        bytes[i] ^= bit;
    }
    expect_still_works();
}

// All counts stand in the head: every four and eight bytes of it, under a checksum that is right.
// What follows does not fit such a head, but much is read and reserved before that shows.
TEST_P(R13, HugeCountsUnderRightChecksums) {
    for (const uint64_t huge :
         {uint64_t{1} << 31, UINT64_MAX >> 1, uint64_t{1} << 63, uint64_t{0xFFFFFFFF},
          uint64_t{0x7FFFFFFF}, uint64_t{1} << 20, uint64_t{0}, uint64_t{17}}) {
        for (const size_t width : {size_t{4}, size_t{8}}) {
            for (size_t at = 0; at + width <= head_size(); at++) {
                std::vector<std::byte> damaged = head();
                if (std::memcmp(damaged.data() + at, &huge, width) == 0) continue;
                std::memcpy(damaged.data() + at, &huge, width);
                expect_refused(with_head(damaged), fmt::format("{} at {} of the head", huge, at));
            }
        }
    }
    expect_still_works();
}

TEST_P(R13, HugeLengthsOfChunks) {
    std::vector<size_t> headers;
    ChunkHeader header;
    for (size_t at = sizeof(Preamble); at + kHeaderBytes < good_.size() - sizeof(Trailer);
         at += kHeaderBytes + header.stored) {
        std::memcpy(&header, good_.data() + at, sizeof header);
        headers.push_back(at);
    }
    EXPECT_GT(headers.size(), 4);
    for (const size_t at : headers) {
        for (const uint64_t huge : {uint64_t{1} << 31, uint64_t{1} << 63, UINT64_MAX}) {
            std::vector<std::byte> bytes = good_;
            std::memcpy(bytes.data() + at + offsetof(ChunkHeader, stored), &huge, sizeof huge);
            expect_refused(bytes, fmt::format("{} bytes in the chunk at {}", huge, at));
        }
    }
    expect_still_works();
}

TEST_P(R13, ChunksOfAnotherState) {
    StateRig one(small_options(GetParam())), other(small_options(GetParam()));
    other.append(5, 1);  // so that its rows are others
    for (StateRig* rig : {&one, &other}) {
        rig->append(0, 9, true);
        rig->append(0, 4);
    }
    ASSERT_NE(one.hash(0), other.hash(0));
    const std::vector<std::byte> mine = save(one, {0});
    std::vector<std::byte> bytes = save(other, {0});
    ASSERT_EQ(bytes.size(), mine.size());
    ASSERT_TRUE(std::equal(mine.begin(), mine.begin() + 300, bytes.begin()));  // even their heads
    const size_t half = mine.size() / 2;
    std::copy_n(mine.begin(), half, bytes.begin());
    expect_refused(bytes, "half of another state");
}

INSTANTIATE_TEST_SUITE_P(Kinds, R13, ::testing::Range<size_t>(0, state_kinds().size()),
                         [](const auto& test) {
                             return std::string(state_kinds()[test.param].name);
                         });

TEST(R13Any, NoStateAtAll) {
    StateRig rig;
    for (const char* text : {"", "GGUF", "CELLAR\r\n", "CELLAR\n\n0123456789012345678901234567"}) {
        const auto loaded = load(rig, std::as_bytes(std::span(text, std::strlen(text))));
        ASSERT_FALSE(loaded) << text;
        EXPECT_EQ(loaded.error().code, Code::kBadFile);
    }
}

TEST(R13Any, CompressedStatesCutOrFlipped) {
    StateRig rig(small_options(0));
    rig.append(0, 30);
    for (uint32_t layer = 0; layer < 2; layer++) {
        const std::vector<uint8_t> zeros(rig->k(layer)->nb[1] * 30, 0);
        ggml_backend_tensor_set(rig->k(layer), zeros.data(), 0, zeros.size());
    }
    SaveOptions options;
    options.compress = true;
    const std::vector<std::byte> good = save(rig, {0}, options);
    ASSERT_LT(good.size(), save(rig, {0}).size());
    StateRig to(small_options(0));
    to.append(0, 3);
    const uint64_t before = to.hash(0);
    for (size_t i = 0; i < good.size(); i++) {
        EXPECT_FALSE(load(to, std::span(good).first(i)));
        std::vector<std::byte> bytes = good;
        bytes[i] ^= std::byte{0x10};
        EXPECT_FALSE(load(to, bytes));
    }
    EXPECT_EQ(to.hash(0), before);
    ASSERT_TRUE(load(to, good));
    EXPECT_EQ(to.hash(0), rig.hash(0));
}

TEST(R13Any, InspectionFindsTheDamageAndStillSaysWhatThereWas) {
    StateRig rig;
    rig.append(0, 30);
    std::vector<std::byte> bytes = save(rig);
    bytes[bytes.size() / 2] ^= std::byte{1};
    MemorySource source(bytes);
    const auto found = inspect_state(source);
    ASSERT_TRUE(found);
    ASSERT_FALSE(found->verified);
    EXPECT_EQ(found->verified.error().code, Code::kBadFile);
    EXPECT_EQ(found->head.n_cells(0), 30);
    bytes[bytes.size() / 2] ^= std::byte{1};
    bytes.push_back(std::byte{0});
    MemorySource longer(bytes);
    EXPECT_FALSE(inspect_state(longer)->verified);
}

}  // namespace
}  // namespace cellar::testing
