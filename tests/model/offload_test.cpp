#include "model/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "model/model.h"
#include "testing/far_device.h"
#include "testing/gguf_bytes.h"
#include "testing/scratch_file.h"

namespace cellar {
namespace {

using testing::far_device;
using Devices = std::vector<ggml_backend_device*>;

TEST(OffloadTest, ReadsWhichLayersAndWhereTo) {
    const auto all = Offload::parse("all").value();
    EXPECT_EQ(all.newest, UINT32_MAX);
    EXPECT_EQ(all.device, "");
    const auto few = Offload::parse("12@CUDA1").value();
    EXPECT_EQ(few.newest, 12u);
    EXPECT_EQ(few.device, "CUDA1");
    const auto some = Offload::parse("3-7@a@b").value();
    EXPECT_EQ(some.newest, std::nullopt);
    EXPECT_EQ(some.first, 3u);
    EXPECT_EQ(some.last, 7u);
    EXPECT_EQ(some.device, "a@b");
    EXPECT_EQ(Offload::parse("0").value().newest, 0u);
}

TEST(OffloadTest, RefusesWhatNamesNoLayers) {
    for (const char* text : {"", "@CUDA0", "3@", "-3", "3-", "7-3", "1-2-3", " 3", "3 ", "0x3",
                             "ALL", "4294967296", "1-4294967296", "+3", "1,2"}) {
        const auto offload = Offload::parse(text);
        ASSERT_FALSE(offload) << text;
        EXPECT_EQ(offload.error().code, Code::kInvalidArgument);
        EXPECT_EQ(offload.error().message.find(std::string("'") + text + "'"), 0u);
    }
}

// The tiny llama has four layers.
class PlacedLayersTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!far_device()) GTEST_SKIP() << "this ggml lets no test make a device";
    }

    static std::vector<Offload> offloads(const std::vector<std::string>& texts) {
        std::vector<Offload> parsed;
        for (const std::string& text : texts)
            parsed.push_back(Offload::parse(text).value());
        return parsed;
    }

    Result<Devices> place(const std::vector<std::string>& texts) const {
        return place_layers(file_, offloads(texts));
    }

    const GgufFile file_ = GgufFile::open(CELLAR_TEST_DATA "/models/tiny-llama.gguf").value();
    ggml_backend_device* const far_ = far_device();
};

TEST_F(PlacedLayersTest, AreOnTheDeviceThatTheLastOffloadSays) {
    EXPECT_EQ(place({}).value(), Devices());
    EXPECT_EQ(place({"all@FAR0"}).value(), Devices(4, far_));
    EXPECT_EQ(place({"99@FAR0"}).value(), Devices(4, far_));
    EXPECT_EQ(place({"0@FAR0"}).value(), Devices(4, nullptr));
    EXPECT_EQ(place({"0@NOWHERE"}).value(), Devices(4, nullptr));
    EXPECT_EQ(place({"1@FAR0"}).value(), (Devices{nullptr, nullptr, nullptr, far_}));
    EXPECT_EQ(place({"0-0@FAR0", "2-2@FAR0"}).value(), (Devices{far_, nullptr, far_, nullptr}));
}

TEST_F(PlacedLayersTest, AreOnTheFirstDeviceUnlessOneIsNamed) {
    ASSERT_FALSE(devices().empty());
    const auto placed = place({"all"}).value();
    EXPECT_EQ(placed[0] == far_, devices()[0].name == "FAR0");
}

TEST_F(PlacedLayersTest, MustBeOfTheModelAndTheDeviceThere) {
    const auto beyond = place({"2-4@FAR0"});
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, Code::kInvalidArgument);
    EXPECT_NE(beyond.error().message.find("layers 2 to 4 cannot be offloaded: the model has 4"),
              std::string::npos)
        << beyond.error().message;
    const auto nowhere = place({"all@NEAR"});
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().code, Code::kInvalidArgument);
    EXPECT_NE(nowhere.error().message.find("no device 'NEAR' here; there are: "), std::string::npos)
        << nowhere.error().message;
    EXPECT_NE(nowhere.error().message.find("FAR0"), std::string::npos);
}

TEST_F(PlacedLayersTest, NeedAFileThatSaysHowManyThereAre) {
    const testing::ScratchFile scratch(
        testing::GgufBytes().string("general.architecture", "llama").bytes());
    const auto file = GgufFile::open(scratch.path());
    ASSERT_TRUE(file);
    EXPECT_EQ(place_layers(*file, offloads({"all@FAR0"})).error().code, Code::kBadFile);
    LoadOptions options;
    options.offloads = offloads({"all@FAR0"});
    EXPECT_EQ(load_model(*file, options).error().code, Code::kBadFile);
}

TEST_F(PlacedLayersTest, KeepTheirMemoryWhereTheirWeightsAre) {
    LoadOptions options;
    options.offloads = offloads({"2@FAR0"});
    const auto model = load_model(file_, options);
    ASSERT_TRUE(model) << model.error().message;
    const ModelInfo& info = (*model)->info();
    EXPECT_EQ(info.devices, Devices{far_});
    EXPECT_EQ(info.layers[1].buffer_type, nullptr);
    EXPECT_NE(info.layers[2].buffer_type, nullptr);
    EXPECT_EQ(info.layers[2].buffer_type, info.layers[3].buffer_type);
    EXPECT_EQ(load_model(file_, {}).value()->info().devices, Devices());
}

TEST_F(PlacedLayersTest, AreListedAmongDevices) {
    const std::vector<DeviceInfo> all = devices();
    const auto far = std::find_if(all.begin(), all.end(),
                                  [](const DeviceInfo& info) { return info.name == "FAR0"; });
    ASSERT_NE(far, all.end());
    EXPECT_EQ(far->description, "The CPU in disguise");
    EXPECT_EQ(far->free_bytes, uint64_t{1} << 30);
    EXPECT_EQ(far->total_bytes, uint64_t{2} << 30);
}

}  // namespace
}  // namespace cellar
