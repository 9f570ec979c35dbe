// Layers that share another layer's KV, and layers that keep none.

#include <ggml-backend.h>
#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memory/memory.h"
#include "memory/rows.h"
#include "testing/poison.h"

namespace cellar {
namespace {

LayerKv sharing(LayerKv layer, uint32_t owner) {
    layer.shares = owner;
    return layer;
}

constexpr LayerKv kWide{0, 2, 32, 64};

MemoryConfig config_of(std::vector<LayerKv> layers) {
    MemoryConfig config;
    config.layers = std::move(layers);
    config.n_cells = 64;
    config.page_size = 16;
    return config;
}

std::unique_ptr<Memory> memory_of(std::vector<LayerKv> layers) {
    auto memory = Memory::create(config_of(std::move(layers)));
    EXPECT_TRUE(memory) << memory.error().message;
    return *std::move(memory);
}

TEST(LayersTest, ASharingLayerHasTheTensorsOfItsOwner) {
    const auto memory = memory_of({{1, 1, 32, 32},
                                   kWide,
                                   sharing(kWide, 1),
                                   {0, 1, 64, 32},
                                   sharing({1, 1, 32, 32}, 0),
                                   sharing(kWide, 1)});
    for (const auto& [layer, owner] : {std::pair{2u, 1u}, {4u, 0u}, {5u, 1u}}) {
        EXPECT_EQ(memory->k(layer), memory->k(owner)) << layer;
        EXPECT_EQ(memory->v(layer), memory->v(owner)) << layer;
        EXPECT_FALSE(memory->keeps(layer)) << layer;
    }
    EXPECT_EQ(memory->k(1)->ne[0], 64);
    EXPECT_EQ(memory->v(1)->ne[0], 128);
    // The layer behind one that shares still finds its own.
    EXPECT_EQ(memory->v(3)->ne[0], 32);
    EXPECT_NE(memory->k(3), memory->k(1));
    EXPECT_TRUE(memory->keeps(0) && memory->keeps(1) && memory->keeps(3));
}

TEST(LayersTest, ALayerThatKeepsNoneHasNoTensorsAndNoGroup) {
    LayerKv strange = LayerKv::none();
    strange.group = 7;
    const auto memory = memory_of({LayerKv::none(), {1, 1, 32, 32}, strange, kWide});
    EXPECT_EQ(memory->cells().n_groups(), 2);
    for (const uint32_t layer : {0u, 2u}) {
        EXPECT_FALSE(memory->keeps(layer));
        EXPECT_EQ(memory->k(layer), nullptr);
        EXPECT_EQ(memory->v(layer), nullptr);
        EXPECT_LT(memory->config().layers[layer].group, 2);
        EXPECT_EQ(row_bytes(*memory, layer, Side::kKeys), 0);
    }
    EXPECT_EQ(memory->k(1)->ne[0], 32);
    EXPECT_EQ(memory->k(3)->ne[0], 64);
}

TEST(LayersTest, OnlyRowsThatAreKeptTakeBytes) {
    const auto two = memory_of({kWide, kWide});
    const auto more = memory_of(
        {kWide, sharing(kWide, 0), kWide, LayerKv::none(), sharing(kWide, 2), sharing(kWide, 0)});
    EXPECT_EQ(more->bytes(), two->bytes());
}

// A row of the one layer that keeps any is (64 + 128) numbers of f16.
TEST(LayersTest, ABudgetOfBytesBuysCellsOfTheLayersThatKeepThem) {
    MemoryConfig config = config_of({kWide, sharing(kWide, 0), LayerKv::none()});
    config.n_cells = 0;
    config.budget_bytes = uint64_t{64} * (64 + 128) * 2;
    const auto memory = Memory::create(config);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_EQ((*memory)->config().n_cells, 64);
}

TEST(LayersTest, PoisonAndClearingReachSharedRows) {
    const auto memory = memory_of({kWide, sharing(kWide, 0), LayerKv::none()});
    testing::poison(*memory);
    std::vector<uint8_t> row(memory->k(1)->nb[1]);
    ggml_backend_tensor_get(memory->k(1), row.data(), 0, row.size());
    EXPECT_EQ(row, std::vector<uint8_t>(row.size(), 0xFF));
    EXPECT_TRUE(memory->clear(true));
    ggml_backend_tensor_get(memory->k(1), row.data(), 0, row.size());
    EXPECT_EQ(row, std::vector<uint8_t>(row.size(), 0));
}

struct Refused {
    const char* why;
    std::vector<LayerKv> layers;
    const char* message;
    std::vector<GroupKind> kinds = {};
};

class RefusedLayersTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedLayersTest, AreToldWhy) {
    MemoryConfig config = config_of(GetParam().layers);
    config.kinds = GetParam().kinds;
    const auto memory = Memory::create(config);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code, Code::kInvalidArgument);
    EXPECT_THAT(memory.error().message, ::testing::HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, RefusedLayersTest,
    ::testing::Values(
        Refused{"of_itself",
                {kWide, sharing(kWide, 1)},
                "layer 1 cannot share the keys and values of layer 1: it is no earlier layer"},
        Refused{"of_a_later_layer",
                {sharing(kWide, 1), kWide},
                "layer 0 cannot share the keys and values of layer 1: it is no earlier layer"},
        Refused{"of_no_layer",
                {kWide, sharing(kWide, UINT32_MAX)},
                "layer 1 cannot share the keys and values of layer 4294967295: it is no earlier"},
        Refused{"of_one_that_shares",
                {kWide, sharing(kWide, 0), sharing(kWide, 1)},
                "layer 2 cannot share the keys and values of layer 1: it keeps none and shares "
                "those of layer 0"},
        Refused{"of_one_that_keeps_none",
                {kWide, LayerKv::none(), sharing(kWide, 1)},
                "layer 2 cannot share the keys and values of layer 1: it keeps none"},
        Refused{"of_another_group",
                {kWide, {1, 2, 32, 64}, sharing({1, 2, 32, 64}, 0)},
                "layer 2 cannot share the keys and values of layer 0: they are of groups 1 and 0"},
        Refused{"of_other_heads",
                {kWide, sharing({0, 1, 32, 64}, 0)},
                "layer 1 cannot share the keys and values of layer 0: it has 2 heads of 32 keys "
                "and 64 values, not 1 heads of 32 keys and 64 values"},
        Refused{"of_other_keys",
                {kWide, sharing({0, 2, 64, 64}, 0)},
                "it has 2 heads of 32 keys and 64 values, not 2 heads of 64 keys and 64 values"},
        Refused{"of_other_values",
                {kWide, sharing({0, 2, 32, 32}, 0)},
                "it has 2 heads of 32 keys and 64 values, not 2 heads of 32 keys and 32 values"},
        Refused{"of_states",
                {kWide, {1, 1, 8, 8}, sharing({1, 1, 8, 8}, 1)},
                "layer 2 cannot share the keys and values of layer 1: group 1 is recurrent and "
                "keeps states",
                {GroupKind::full(), GroupKind::recurrent()}},
        Refused{"nothing_at_all",
                {LayerKv::none(), LayerKv::none()},
                "at least one layer that keeps keys and values, but none of 2 does"},
        Refused{"heads_of_no_width",
                {{0, 1, 0, 0}},
                "layer 0 has 1 heads of 0 keys: both must be at least 1"},
        Refused{"widths_of_no_head",
                {{0, 0, 32, 32}},
                "layer 0 has 0 heads of 32 keys: both must be at least 1"}),
    [](const auto& test) { return std::string(test.param.why); });

}  // namespace
}  // namespace cellar
