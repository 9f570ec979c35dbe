#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/decoding.h"
#include "engine/sharing_llama.h"
#include "state/loader.h"
#include "state/saving.h"
#include "state/sink.h"
#include "state/source.h"
#include "testing/poison.h"

// A state that was loaded goes on as a memory that computed it: under another page size, another
// id, another way of attention, into pages whose rows nobody owned before and which are NaN.

namespace cellar {
namespace {

using testing::choose;
using testing::Decoding;
using testing::max_difference;
using testing::open_model;
using testing::poison;
using testing::random_text;
using testing::Row;
using testing::SharingLlama;
using testing::Way;

// Tiles of other pages round otherwise.
constexpr float kTolerance = 2e-4f;

// A llama of whose layers one shares the keys and values of another, and one has no attention.
constexpr const char* kShared = "tiny-shared";

using Setting = std::tuple<const char*, KvType, Way, Way>;

class SavedLogitsTest : public ::testing::TestWithParam<Setting> {
protected:
    SavedLogitsTest() : model_(open(std::get<0>(GetParam()))) {}

    static std::unique_ptr<Model> open(const std::string& name) {
        const std::string folder = CELLAR_TEST_DATA "/models/";
        if (name != kShared) return open_model(folder + name + ".gguf");
        return SharingLlama::load(folder + "tiny-llama.gguf", {0, 0, std::nullopt, 3});
    }

    Decoding decoding(Way way, uint32_t page_size) const {
        DecoderOptions options;
        options.n_cells = 512;
        options.page_size = page_size;
        options.max_ubatch = 32;
        options.type_k = options.type_v = std::get<1>(GetParam());
        choose(way, options);
        return {*model_, options};
    }

    static std::vector<std::byte> save(Decoding& decoding, const std::vector<SequenceToSave>& seqs,
                                       bool compress) {
        auto saving =
            Saving::begin(decoding.memory(), Identity{}, seqs, SaveOptions{.compress = compress});
        EXPECT_TRUE(saving) << saving.error().message;
        MemorySink sink;
        EXPECT_TRUE(saving->write(sink));
        return sink.bytes();
    }

    const std::unique_ptr<Model> model_;
};

TEST_P(SavedLogitsTest, LoadedSequencesGoOnAsTheirOriginals) {
    const auto [name, type, way, way_after] = GetParam();
    const std::vector<Token> prompt = random_text(90, 1), tail = random_text(7, 2);
    const SeqId first{0}, second{1};
    Decoding original = decoding(way, 16);
    original.append(first, prompt);
    ASSERT_TRUE(original.memory().seq_cp(first, second, 0, kOpen));
    original.append(second, tail);
    const auto bytes = save(original, {{first, prompt}, {second, {}}}, way == way_after);

    Decoding loaded = decoding(way_after, 8);
    loaded.append(SeqId{9}, random_text(13, 3));  // its pages lie in the way
    poison(loaded.memory());
    MemorySource source(bytes);
    const auto done = load_state(loaded.memory(), Identity{}, source,
                                 {.seqs = {{first, SeqId{5}}, {second, SeqId{3}}}});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->front().tokens, prompt);

    const float tolerance = way == way_after ? kTolerance : 5e-3f;
    for (const auto& [here, there] : {std::pair(first, SeqId{5}), {second, SeqId{3}}}) {
        for (const auto& more : {random_text(5, 4), random_text(40, 5)}) {
            poison(original.memory());
            poison(loaded.memory());
            const Row expected = original.append(here, more);
            EXPECT_LE(max_difference(loaded.append(there, more), expected), tolerance) << name;
        }
    }
}

// Of f32 keys: rounded ones give others.
class FreshLogitsTest : public SavedLogitsTest {};

TEST_P(FreshLogitsTest, DecodingSavedTokensAnewGivesTheSame) {
    const auto [name, type, way, way_after] = GetParam();
    const std::vector<Token> prompt = random_text(70, 6), tail = random_text(9, 7);
    Decoding original = decoding(way, 32);
    original.append(SeqId{0}, prompt);
    const auto bytes = save(original, {{SeqId{0}, prompt}}, true);

    Decoding loaded = decoding(way_after, 64), fresh = decoding(way_after, 64);
    poison(loaded.memory());
    MemorySource source(bytes);
    const auto done = load_state(loaded.memory(), Identity{}, source, {.into = SeqId{2}});
    ASSERT_TRUE(done) << done.error().message;
    fresh.append(SeqId{0}, done->front().tokens);
    EXPECT_LE(max_difference(loaded.append(SeqId{2}, tail), fresh.append(SeqId{0}, tail)), 5e-4f)
        << name;
}

std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
    const auto& [model, type, way, way_after] = info.param;
    const auto of = [](Way w) { return w == Way::kKernel ? "Kernel" : "Graph"; };
    std::string name = std::string(model).substr(5) + "_" + std::string(cellar::name(type));
    return name + of(way) + of(way_after);
}

INSTANTIATE_TEST_SUITE_P(
    Models, SavedLogitsTest,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-gemma3", "tiny-mpt", "tiny-qwen3",
                                         "tiny-mamba", "tiny-lfm2", kShared),
                       ::testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16),
                       ::testing::Values(Way::kKernel), ::testing::Values(Way::kKernel)),
    setting_name);

INSTANTIATE_TEST_SUITE_P(Models, FreshLogitsTest,
                         ::testing::Combine(::testing::Values("tiny-llama", "tiny-gemma3",
                                                              "tiny-mpt", "tiny-qwen3",
                                                              "tiny-mamba", "tiny-lfm2", kShared),
                                            ::testing::Values(KvType::kF32),
                                            ::testing::Values(Way::kKernel),
                                            ::testing::Values(Way::kKernel)),
                         setting_name);

INSTANTIATE_TEST_SUITE_P(OtherWay, SavedLogitsTest,
                         ::testing::Combine(::testing::Values("tiny-llama", "tiny-gemma3", kShared),
                                            ::testing::Values(KvType::kF32, KvType::kF16),
                                            ::testing::Values(Way::kKernel, Way::kSoftMax),
                                            ::testing::Values(Way::kSoftMax)),
                         setting_name);

}  // namespace
}  // namespace cellar
