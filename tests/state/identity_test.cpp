// R15: a state of another model, adapter, rope, type or version is a miss, and says which.

#include "state/identity.h"

#include <gtest/gtest.h>

#include "state/state_rig.h"

namespace cellar::testing {
namespace {

struct Difference {
    const char* name;
    void (*change)(Identity&);
    const char* says;
};

class R15 : public ::testing::TestWithParam<Difference> {};

TEST_P(R15, IsRefusedInAWordOfItsOwn) {
    StateRig rig;
    rig.append(0, 20);
    const std::vector<std::byte> bytes = save(rig);
    const uint64_t before = rig.hash(0);
    Identity identity = test_identity();
    GetParam().change(identity);
    const auto loaded = load(rig, bytes, {}, identity);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
    EXPECT_NE(loaded.error().message.find(GetParam().says), std::string::npos)
        << loaded.error().message;
    EXPECT_EQ(rig.hash(0), before);
}

INSTANTIATE_TEST_SUITE_P(
    Identities, R15,
    ::testing::Values(
        Difference{"weights", [](Identity& i) { i.weights[31] ^= 1; }, "another model"},
        Difference{"tokenizer", [](Identity& i) { i.tokenizer[0] ^= 1; }, "another tokenizer"},
        Difference{"rope", [](Identity& i) { i.rope[7] ^= 1; }, "other rope settings"},
        Difference{"adapter", [](Identity& i) { i.adapters[0].content[3] ^= 1; },
                   "another adapter"},
        Difference{"adapter_scale", [](Identity& i) { i.adapters[0].scale = 1.0f; }, "scale"},
        Difference{"no_adapter", [](Identity& i) { i.adapters.clear(); }, "1 adapters, not 0"},
        Difference{"weights_and_tokenizer",
                   [](Identity& i) {
                       i.weights[0] ^= 1;
                       i.tokenizer[0] ^= 1;
                   },
                   "another tokenizer"}),
    [](const auto& test) { return std::string(test.param.name); });

// Equal in the bytes of a row, and nothing else.
TEST(R15Shapes, TypesOfOneSizeAreNotTheSame) {
    RigOptions options;
    options.type_k = KvType::kQ4_0;
    StateRig rig(options);
    rig.append(0, 20);
    options.type_k = KvType::kIq4Nl;
    StateRig to(options);
    const auto loaded = load(to, save(rig));
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
    EXPECT_NE(loaded.error().message.find("q4_0"), std::string::npos);
    EXPECT_NE(loaded.error().message.find("iq4_nl"), std::string::npos);
}

TEST(R15Shapes, ModelsOfOtherShapesAreRefused) {
    StateRig rig;
    rig.append(0, 20);
    const std::vector<std::byte> bytes = save(rig);
    const auto refused = [&](const RigOptions& options, const char* says) {
        StateRig to(options);
        const auto loaded = load(to, bytes);
        ASSERT_FALSE(loaded) << says;
        EXPECT_EQ(loaded.error().code, Code::kUnsupported);
        EXPECT_NE(loaded.error().message.find(says), std::string::npos) << loaded.error().message;
    };
    RigOptions options;
    options.kind.layers.pop_back();
    refused(options, "2 layers, not 1");
    options.kind.layers = {{0, 2, 32, 64}, {0, 2, 32, 32}};
    refused(options, "layer 1");
    // Rows where none belong.
    options.kind.layers = {{0, 2, 32, 64}, {0, 2, 32, 64, 0}};
    refused(options,
            "layer 1 of group 0 has keys of 64 numbers and values of 32, not of group 0 "
            "with 0 and 0");
    options.kind.layers = {{0, 2, 32, 64}, LayerKv::none()};
    refused(options, "with 0 and 0");
    options.kind = state_kinds()[1];
    refused(options, "window");
    options.kind = state_kinds()[3];
    refused(options, "1 groups of layers, not 3");
    options = {};
    options.n_pos = 4;
    refused(options, "components");
}

TEST(R15Shapes, RowsThatAreMissingAreRefused) {
    RigOptions options;
    options.kind.layers = {{0, 2, 32, 64}, {0, 2, 32, 64, 0}};
    StateRig rig(options);
    rig.append(0, 20);
    options.kind.layers[1].shares = std::nullopt;
    StateRig to(options);
    const auto loaded = load(to, save(rig));
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
    EXPECT_NE(loaded.error().message.find("layer 1 of group 0 has keys of 0 numbers and values of "
                                          "0, not of group 0 with 64 and 128"),
              std::string::npos)
        << loaded.error().message;
}

TEST(R15Shapes, AnotherVersionIsRefused) {
    StateRig rig;
    rig.append(0, 20);
    std::vector<std::byte> bytes = save(rig);
    bytes[8] = std::byte{2};
    const auto loaded = load(rig, bytes);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
    EXPECT_NE(loaded.error().message.find("version 2"), std::string::npos);
}

// What windows have lost cannot be found where a memory promises to keep them whole.
TEST(R15Shapes, LostWindowsDoNotFitAMemoryThatKeepsThem) {
    RigOptions options;
    options.kind = state_kinds()[1];
    StateRig rig(options);
    rig.append(0, 40);
    MemoryConfig config = rig->config();
    config.keeps_windows = true;
    auto keeping = Memory::create(config);
    ASSERT_TRUE(keeping);
    const std::vector<std::byte> bytes = save(rig);
    MemorySource source(bytes);
    const auto loaded = load_state(**keeping, test_identity(), source, {});
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace cellar::testing
