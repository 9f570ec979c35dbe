#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/decoding.h"
#include "testing/far_device.h"

// Logits that llama.cpp computed, of tiny models in full and of real ones by their highest.

namespace cellar {
namespace {

using testing::choose;
using testing::Decoding;
using testing::expected;
using testing::max_difference;
using testing::offloading;
using testing::open_model;
using testing::Row;
using testing::Way;

// The tiny models' attention moves their logits by little: a rope of the wrong kind, or no norms of
// heads, by 3e-3 to 4e-3. What was seen of ours is 1.3e-4 for prompts, and 1.6e-3 where llama.cpp
// decoded token by token, which its kernels do with other roundings.
constexpr float kPromptTolerance = 3e-4f;
constexpr float kDecodeTolerance = 2e-3f;

DecoderOptions f32_options(uint32_t max_ubatch, Way way) {
    DecoderOptions options;
    options.n_cells = 256;
    options.max_ubatch = max_ubatch;
    options.type_k = KvType::kF32;
    options.type_v = KvType::kF32;
    choose(way, options);
    return options;
}

// A model of tests/data/models, by name, how its steps are computed, and what of it is offloaded.
using Cut = std::tuple<const char*, uint32_t, Way, const char*>;

class TinyModelTest : public ::testing::TestWithParam<Cut> {
protected:
    TinyModelTest()
        : model_(open_model(fmt::format("{}/models/{}.gguf", CELLAR_TEST_DATA, name()),
                            offloading(std::get<3>(GetParam())))),
          decoding_(*model_, f32_options(std::get<1>(GetParam()), std::get<2>(GetParam()))),
          expected_(expected(fmt::format("{}.json", name()))),
          tokens_(expected_["tokens"]) {}

    static const char* name() { return std::get<0>(GetParam()); }

    void check_prefill();
    void check_forks();

    const std::unique_ptr<Model> model_;
    Decoding decoding_;
    const nlohmann::json expected_;
    const std::vector<Token> tokens_;
};

void TinyModelTest::check_prefill() {
    Batch batch;
    for (const Token token : tokens_) {
        batch.add(token, SeqId{0}, kNextPos, true);
    }
    const uint64_t before = testing::computed_far_away();
    const auto rows = decoding_.decode(batch);
    ASSERT_EQ(rows.size(), tokens_.size());
    EXPECT_EQ(testing::computed_far_away() > before, !model_->info().devices.empty());
    for (const auto& [item, row] : expected_["prefill"].items()) {
        EXPECT_LE(max_difference(rows.at(std::stoul(item)), row.get<Row>()), kPromptTolerance)
            << item;
    }
}

void TinyModelTest::check_forks() {
    decoding_.append(SeqId{0}, {tokens_.begin(), tokens_.begin() + 40});
    ASSERT_TRUE(decoding_.memory().seq_cp(SeqId{0}, SeqId{1}, -1, -1));
    for (size_t i = 0; i < expected_["fork_at_40"].size(); i++) {
        Batch batch;
        batch.add(expected_["continuation_a"][i], SeqId{0}, kNextPos, true);
        batch.add(expected_["continuation_b"][i], SeqId{1}, kNextPos, true);
        const auto rows = decoding_.decode(batch);
        const auto& step = expected_["fork_at_40"][i];
        EXPECT_LE(max_difference(rows.at(0), step["a"].get<Row>()), kDecodeTolerance) << i;
        EXPECT_LE(max_difference(rows.at(1), step["b"].get<Row>()), kDecodeTolerance) << i;
    }
}

TEST_P(TinyModelTest, PrefillHasTheLogitsOfLlamaCpp) {
    check_prefill();
}

TEST_P(TinyModelTest, ForksContinueApartWithTheLogitsOfLlamaCpp) {
    check_forks();
}

// 64 tokens, of which 16 go and those behind them move up.
TEST_P(TinyModelTest, ShiftsContinueWithTheLogitsOfLlamaCpp) {
    decoding_.append(SeqId{0}, {tokens_.begin(), tokens_.begin() + 64});
    ASSERT_TRUE(decoding_.memory().seq_rm(SeqId{0}, 8, 24));
    ASSERT_TRUE(decoding_.memory().seq_add(SeqId{0}, 24, -1, -16));
    ASSERT_EQ(decoding_.memory().seq_pos_max(SeqId{0}), 47);
    const auto& steps = expected_["shift"]["continuation_a"];
    ASSERT_FALSE(steps.empty());
    for (size_t i = 0; i < steps.size(); i++) {
        const Row row = decoding_.append(SeqId{0}, {expected_["continuation_a"][i].get<Token>()});
        EXPECT_LE(max_difference(row, steps[i].get<Row>()), kDecodeTolerance) << i;
    }
}

// What sequences share may be read once for all of them, or by each for itself.
TEST(SharedPrompts, ChangeNoLogits) {
    const nlohmann::json json = expected("tiny-llama.json");
    const std::vector<Token> tokens = json["tokens"];
    const auto logits = [&](bool cascade) {
        DecoderOptions options = f32_options(512, Way::kKernel);
        options.cascade = cascade;
        Decoding decoding(testing::tiny_llama(), options);
        decoding.append(SeqId{0}, {tokens.begin(), tokens.begin() + 40});
        for (int seq = 1; seq < 4; seq++)
            EXPECT_TRUE(decoding.memory().seq_cp(SeqId{0}, SeqId{seq}, -1, -1));
        std::vector<Row> all;
        for (size_t step = 0; step < 8; step++) {
            Batch batch;
            for (int seq = 0; seq < 4; seq++)
                batch.add(tokens[40 + step + static_cast<size_t>(seq)], SeqId{seq}, kNextPos, true);
            for (const auto& [item, row] : decoding.decode(batch))
                all.push_back(row);
        }
        return all;
    };
    const auto shared = logits(true), alone = logits(false);
    ASSERT_EQ(shared.size(), 32U);
    float most = 0;
    for (size_t i = 0; i < shared.size(); i++)
        most = std::max(most, max_difference(shared[i], alone[i]));
    EXPECT_LE(most, 1e-4f);
    EXPECT_GT(most, 0);  // or the cascade was not there
}

std::string name_of(const ::testing::TestParamInfo<Cut>& test) {
    const auto& [model, max_ubatch, way, offload] = test.param;
    std::ostringstream name;
    name << model << '_' << max_ubatch << '_' << way << (*offload ? "_far_" : "") << offload;
    std::string text = name.str();
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
}

// Models whose states no verb can move along.
class TinyStatesTest : public TinyModelTest {};

TEST_P(TinyStatesTest, PrefillHasTheLogitsOfLlamaCpp) {
    check_prefill();
}

TEST_P(TinyStatesTest, ForksContinueApartWithTheLogitsOfLlamaCpp) {
    check_forks();
}

INSTANTIATE_TEST_SUITE_P(Ubatches, TinyStatesTest,
                         ::testing::Combine(::testing::Values("tiny-mamba", "tiny-lfm2"),
                                            ::testing::Values(1u, 7u, 32u, 512u),
                                            ::testing::Values(Way::kKernel), ::testing::Values("")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Offloaded, TinyStatesTest,
                         ::testing::Combine(::testing::Values("tiny-mamba", "tiny-lfm2"),
                                            ::testing::Values(7u, 512u),
                                            ::testing::Values(Way::kAuto),
                                            ::testing::Values("all", "1", "0-1")),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Ubatches, TinyModelTest,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-gemma3", "tiny-qwen3", "tiny-mpt"),
                       ::testing::Values(1u, 7u, 32u, 512u),
                       ::testing::Values(Way::kKernel, Way::kFlash, Way::kSoftMax),
                       ::testing::Values("")),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Offloaded, TinyModelTest,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-gemma3", "tiny-qwen3", "tiny-mpt"),
                       ::testing::Values(7u, 512u), ::testing::Values(Way::kAuto, Way::kSoftMax),
                       ::testing::Values("all", "1", "0-1")),
    name_of);

// Real models' products round activations to 8 bits, so that the last bits of any other kernel grow
// to some tenths in their logits, and now and then to more. Bounds stand above what llama.cpp shows
// against its own listed logits: with weights repacked or not, flash attention on and off, rows of
// f16 and f32. For Gemma 3 that is up to 1.83, 0.45 in the mean of a prompt, and ours, with
// and without AMX, 1.97 and 0.46; with its weights unpacked to f32 we lie within 0.02 of
// llama.cpp's on the same machine. A window, a base of positions or a pattern of layers that is
// wrong moves it by 5.5 or more.
struct RealModel {
    const char* file;      // in the folder of models
    const char* expected;  // in tests/data/expected
    uint32_t n_cells;
    float most;  // that one of the listed logits may differ by,
    float mean;  // and all of a prompt's, in the mean
};

std::ostream& operator<<(std::ostream& out, const RealModel& real) {
    return out << real.file;
}

constexpr RealModel kSmolLm2{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2.json", 1024, 1.0f, 0.4f};
constexpr RealModel kGemma3{"gemma-3-270m-q4_k_m.gguf", "gemma3_270m.json", 2048, 2.5f, 0.6f};

// Top logits nearer to each other than this may change places.
constexpr float kTie = 1.0f;

class RealModelTest : public ::testing::TestWithParam<std::tuple<RealModel, size_t>> {
protected:
    static const RealModel& real() { return std::get<0>(GetParam()); }
    static std::string path() { return std::string(CELLAR_MODELS "/") + real().file; }

    void SetUp() override {
        if (!std::filesystem::exists(path())) {
            GTEST_SKIP() << path() << " is missing: `make models` fetches it.";
        }
    }

    // Loaded once for all its prompts.
    static const Model& model() {
        static std::map<std::string, std::unique_ptr<Model>> models;
        auto& model = models[path()];
        if (!model) model = open_model(path());
        return *model;
    }

    // The prompt, the greedy tokens that follow it, and the five highest logits of each.
    static nlohmann::json text() { return expected(real().expected)[std::get<1>(GetParam())]; }
};

Token greedy(const Row& row) {
    return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Steps are teacher-forced: each is fed the listed token, whatever ours was.
TEST_P(RealModelTest, ChoosesTheTokensOfLlamaCppButForTies) {
    const nlohmann::json text = this->text();
    DecoderOptions options;
    options.n_cells = real().n_cells;
    options.n_threads = 1;  // tests run beside each other
    Decoding decoding(model(), options);
    Row row = decoding.append(SeqId{0}, text["tokens"].get<std::vector<Token>>());
    int judged = 0;
    float most = 0, sum = 0, count = 0;
    for (size_t i = 0; i < text["steps"].size(); i++) {
        const auto& top = text["steps"][i];
        for (const auto& entry : top) {
            const float difference = std::abs(row[entry[0].get<size_t>()] - entry[1].get<float>());
            EXPECT_LE(difference, real().most) << "step " << i << ", token " << entry[0];
            most = std::max(most, difference);
            sum += difference;
            count++;
        }
        const bool tied = top[0][1].get<float>() - top[1][1].get<float>() <= kTie;
        const Token listed = text["greedy"][i];
        if (!tied) {
            EXPECT_EQ(greedy(row), listed) << "step " << i;
            judged++;
        }
        row = decoding.append(SeqId{0}, {listed});
    }
    EXPECT_LE(sum / count, real().mean);
    EXPECT_GT(judged, 3) << "nearly all steps were ties";
    RecordProperty("max_difference", std::to_string(most));
    std::printf("    top-5 logits differ by up to %.4f, %.4f in the mean\n",
                static_cast<double>(most), static_cast<double>(sum / count));
}

INSTANTIATE_TEST_SUITE_P(SmolLm2, RealModelTest,
                         ::testing::Combine(::testing::Values(kSmolLm2),
                                            ::testing::Range<size_t>(0, 6)),
                         [](const auto& test) { return std::to_string(test.index); });
INSTANTIATE_TEST_SUITE_P(Gemma3, RealModelTest,
                         ::testing::Combine(::testing::Values(kGemma3),
                                            ::testing::Range<size_t>(0, 6)),
                         [](const auto& test) { return std::to_string(test.index); });

// What the bounds above are worth for sliding layers depends on it.
TEST(Gemma3Prompts, TheLastIsLongerThanTheWindow) {
    const std::string path = std::string(CELLAR_MODELS "/") + kGemma3.file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing";
    const auto model = open_model(path);
    EXPECT_EQ(model->info().kinds,
              (std::vector<GroupKind>{GroupKind::full(), GroupKind::sliding(512)}));
    EXPECT_GT(expected(kGemma3.expected).back()["tokens"].size(), 512u);
}

}  // namespace
}  // namespace cellar
