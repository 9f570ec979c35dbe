#include "memory/pool.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "memory/ggml_kv_type.h"

namespace cellar {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr KvType kAll[] = {KvType::kF32,  KvType::kF16,  KvType::kBf16,
                           KvType::kQ8_0, KvType::kQ4_0, KvType::kQ4_1,
                           KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl};

PoolConfig two_layers(KvType type_k, KvType type_v) {
    return {{{0, 2, 64, 32}, {1, 1, 96, 96}}, type_k, type_v, 64, 16};
}

Pool make_pool(const PoolConfig& config) {
    auto pool = Pool::create(config);
    EXPECT_TRUE(pool) << pool.error().message;
    return std::move(*pool);
}

std::vector<ggml_tensor*> tensors(const Pool& pool) {
    return {pool.k(0), pool.v(0), pool.k(1), pool.v(1)};
}

Bytes row(const ggml_tensor* tensor, size_t i) {
    Bytes bytes(tensor->nb[1]);
    ggml_backend_tensor_get(tensor, bytes.data(), i * bytes.size(), bytes.size());
    return bytes;
}

// Bytes that tell rows and tensors apart, and what stands within a row.
Bytes pattern(const ggml_tensor* tensor, size_t i, uint8_t salt) {
    Bytes bytes(tensor->nb[1]);
    for (size_t b = 0; b < bytes.size(); b++)
        bytes[b] = static_cast<uint8_t>(i * 31 + b * 7 + salt);
    return bytes;
}

void fill(const Pool& pool) {
    uint8_t salt = 1;
    for (ggml_tensor* tensor : tensors(pool)) {
        for (size_t i = 0; i + 1 < static_cast<size_t>(tensor->ne[1]); i++) {
            const Bytes bytes = pattern(tensor, i, salt);
            ggml_backend_tensor_set(tensor, bytes.data(), i * bytes.size(), bytes.size());
        }
        salt++;
    }
}

// Pages of memory that the system has committed for a tensor.
size_t resident_pages(const ggml_tensor* tensor) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(tensor->data) / page * page;
    const size_t length = reinterpret_cast<uintptr_t>(tensor->data) + ggml_nbytes(tensor) - begin;
    std::vector<unsigned char> resident((length + page - 1) / page);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), length, resident.data()), 0);
    return static_cast<size_t>(
        std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; }));
}

TEST(PoolTest, HasARowForEachCellAndTheZeroRow) {
    const Pool pool = make_pool(two_layers(KvType::kF16, KvType::kQ8_0));
    EXPECT_EQ(pool.k(0)->ne[0], 128);
    EXPECT_EQ(pool.v(0)->ne[0], 64);
    EXPECT_EQ(pool.k(1)->ne[0], 96);
    EXPECT_EQ(pool.v(1)->ne[0], 96);
    for (const ggml_tensor* tensor : tensors(pool))
        EXPECT_EQ(tensor->ne[1], 65);
    EXPECT_EQ(pool.k(0)->type, GGML_TYPE_F16);
    EXPECT_EQ(pool.v(0)->type, GGML_TYPE_Q8_0);
}

TEST(PoolTest, CountsTheBytesOfAllTensors) {
    const Pool pool = make_pool(two_layers(KvType::kF16, KvType::kQ8_0));
    size_t bytes = 0;
    for (const ggml_tensor* tensor : tensors(pool))
        bytes += ggml_nbytes(tensor);
    EXPECT_GE(pool.bytes(), bytes);
    EXPECT_LE(pool.bytes(), bytes + 4 * 64);
}

TEST(PoolTest, TensorsStandApartAndAligned) {
    const Pool pool = make_pool(two_layers(KvType::kF16, KvType::kQ5_1));
    fill(pool);
    uint8_t salt = 1;
    for (const ggml_tensor* tensor : tensors(pool)) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 64, 0);
        for (size_t i = 0; i < 64; i++)
            EXPECT_EQ(row(tensor, i), pattern(tensor, i, salt));
        EXPECT_EQ(row(tensor, 64), Bytes(tensor->nb[1], 0));
        salt++;
    }
}

TEST(PoolTest, StaysWhereItIsWhenMoved) {
    Pool pool = make_pool(two_layers(KvType::kF16, KvType::kF16));
    fill(pool);
    const void* data = pool.k(1)->data;
    std::vector<Pool> pools;
    pools.push_back(std::move(pool));
    pools.push_back(make_pool(two_layers(KvType::kF16, KvType::kF16)));
    EXPECT_EQ(pools[0].k(1)->data, data);
    EXPECT_EQ(row(pools[0].k(1), 5), pattern(pools[0].k(1), 5, 3));
}

// Where layers are: host memory that is reserved, memory that a backend allocates, or one of each.
enum class Where { kReserved, kAllocated, kSplit };

class PoolTypeTest : public testing::TestWithParam<std::tuple<KvType, Where>> {
protected:
    Pool make() const {
        const auto [type, where] = GetParam();
        PoolConfig config = two_layers(type, type);
        if (where != Where::kReserved)
            config.layers[1].buffer_type = ggml_backend_cpu_buffer_type();
        if (where == Where::kAllocated)
            config.layers[0].buffer_type = ggml_backend_cpu_buffer_type();
        return make_pool(config);
    }
};

TEST_P(PoolTypeTest, LayersShareABufferWhereTheyShareItsType) {
    const Pool pool = make();
    EXPECT_EQ(pool.k(0)->buffer, pool.v(0)->buffer);
    EXPECT_EQ(pool.k(1)->buffer, pool.v(1)->buffer);
    EXPECT_EQ(pool.k(0)->buffer == pool.k(1)->buffer, std::get<1>(GetParam()) != Where::kSplit);
    size_t bytes = 0;
    for (const ggml_tensor* tensor : tensors(pool))
        bytes += ggml_nbytes(tensor);
    EXPECT_GE(pool.bytes(), bytes);
    EXPECT_LE(pool.bytes(), bytes + 4 * 64);
}

TEST_P(PoolTypeTest, BeginsAsZeros) {
    const Pool pool = make();
    for (const ggml_tensor* tensor : tensors(pool)) {
        for (size_t i = 0; i <= 64; i++)
            EXPECT_EQ(row(tensor, i), Bytes(tensor->nb[1], 0));
    }
}

TEST_P(PoolTypeTest, CopiesCellsOfAllLayersAndTouchesNoOther) {
    Pool pool = make();
    fill(pool);
    // Cells 3 .. 7 of page 1 to the start of page 3, and the whole of page 0 to page 2.
    pool.copy(std::array{CellCopy{PageId{1}, PageId{3}, 3, 0, 5},
                         CellCopy{PageId{0}, PageId{2}, 0, 0, 16}});
    uint8_t salt = 1;
    for (const ggml_tensor* tensor : tensors(pool)) {
        for (size_t i = 0; i < 64; i++) {
            size_t source = i;
            if (i >= 32 && i < 48) source = i - 32;
            if (i >= 48 && i < 53) source = 16 + 3 + (i - 48);
            EXPECT_EQ(row(tensor, i), pattern(tensor, source, salt)) << "row " << i;
        }
        EXPECT_EQ(row(tensor, 64), Bytes(tensor->nb[1], 0));
        salt++;
    }
}

TEST_P(PoolTypeTest, ClearZeroesEveryRow) {
    Pool pool = make();
    fill(pool);
    pool.clear();
    for (const ggml_tensor* tensor : tensors(pool)) {
        for (size_t i = 0; i <= 64; i++)
            EXPECT_EQ(row(tensor, i), Bytes(tensor->nb[1], 0));
    }
}

std::string type_and_place(const testing::TestParamInfo<std::tuple<KvType, Where>>& test) {
    static constexpr const char* kWhere[] = {"_reserved", "_allocated", "_split"};
    const auto [type, where] = test.param;
    return std::string(name(type)) + kWhere[static_cast<int>(where)];
}

INSTANTIATE_TEST_SUITE_P(Types, PoolTypeTest,
                         testing::Combine(testing::ValuesIn(kAll),
                                          testing::Values(Where::kReserved, Where::kAllocated,
                                                          Where::kSplit)),
                         type_and_place);

TEST(PoolTest, CommitsMemoryOnlyAsItIsWritten) {
    PoolConfig config{{{0, 8, 128, 128}}, KvType::kF16, KvType::kF16, 1u << 20, 32};
    Pool pool = make_pool(config);
    EXPECT_GE(pool.bytes(), uint64_t{4} << 30);
    EXPECT_EQ(resident_pages(pool.k(0)), 0);
    const Bytes bytes(pool.k(0)->nb[1], 1);
    ggml_backend_tensor_set(pool.k(0), bytes.data(), 1000 * bytes.size(), bytes.size());
    EXPECT_GE(resident_pages(pool.k(0)), 1);
    EXPECT_LE(resident_pages(pool.k(0)), 1024);  // where the system's pages are huge, one of them
    EXPECT_EQ(resident_pages(pool.v(0)), 0);
    pool.clear();
    EXPECT_EQ(resident_pages(pool.k(0)), 0);
}

TEST(PoolTest, CommitsAllAtOnceWhenAskedAndKeepsWhatItHolds) {
    Pool pool = make_pool({{{0, 2, 32, 32}}, KvType::kF16, KvType::kF16, 1u << 12, 32});
    const Bytes written(pool.k(0)->nb[1], 7);
    ggml_backend_tensor_set(pool.k(0), written.data(), 1000 * written.size(), written.size());
    ASSERT_TRUE(pool.commit());
    for (const ggml_tensor* tensor : {pool.k(0), pool.v(0)}) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        EXPECT_GE(resident_pages(tensor), ggml_nbytes(tensor) / page);
    }
    Bytes kept(written.size());
    ggml_backend_tensor_get(pool.k(0), kept.data(), 1000 * kept.size(), kept.size());
    EXPECT_EQ(kept, written);
}

struct Refused {
    const char* why;
    PoolConfig config;
    Code code;
    const char* says;
};

class RefusedPoolTest : public testing::TestWithParam<Refused> {};

TEST_P(RefusedPoolTest, SaysWhy) {
    const auto pool = Pool::create(GetParam().config);
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, GetParam().code);
    EXPECT_NE(pool.error().message.find(GetParam().says), std::string::npos)
        << pool.error().message;
}

constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Sizes, RefusedPoolTest,
    testing::Values(
        Refused{"no_heads",
                {{{3, 0, 64, 64}}, KvType::kF16, KvType::kF16, 64, 16},
                Code::kInvalidArgument,
                "layer 3"},
        Refused{"no_width_of_keys",
                {{{0, 2, 0, 64}}, KvType::kF16, KvType::kF16, 64, 16},
                Code::kInvalidArgument,
                "key"},
        Refused{"no_width_of_values",
                {{{0, 2, 64, 0}}, KvType::kF16, KvType::kF16, 64, 16},
                Code::kInvalidArgument,
                "value"},
        // The row of 4 heads is 5 whole blocks, but blocks would reach over the ends of heads.
        Refused{"blocks_over_heads",
                {{{7, 4, 40, 64}}, KvType::kQ8_0, KvType::kF16, 64, 16},
                Code::kUnsupported,
                "multiple of 32"},
        Refused{"blocks_over_value_heads",
                {{{7, 4, 64, 40}}, KvType::kF16, KvType::kQ4_0, 64, 16},
                Code::kUnsupported,
                "width of 40"},
        Refused{"rows_overflow",
                {{{0, kMost, kMost, 1}}, KvType::kF32, KvType::kF32, 64, 16},
                Code::kInvalidArgument,
                "beyond any memory"},
        Refused{"tensors_overflow",
                {{{0, kMost, 4096, 1}}, KvType::kF32, KvType::kF32, 1u << 30, 16},
                Code::kInvalidArgument,
                "beyond any memory"},
        Refused{"layers_overflow",
                {std::vector<PoolConfig::Layer>(64, {0, 1u << 14, 1u << 14, 1u << 14}),
                 KvType::kF32, KvType::kF32, 1u << 24, 16},
                Code::kInvalidArgument,
                "64 layers"},
        Refused{"more_than_address_space",
                {{{0, 1u << 14, 1u << 10, 1}}, KvType::kF32, KvType::kF32, 1u << 30, 16},
                Code::kBackend,
                "address space"}),
    [](const auto& test) { return std::string(test.param.why); });

}  // namespace
}  // namespace cellar
