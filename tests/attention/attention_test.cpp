#include "attention/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <random>
#include <string>
#include <tuple>

#include "attention/attention_rig.h"
#include "attention/encoder_mask.h"

namespace cellar {
namespace {

using testing::AttentionRig;
using testing::kPaths;
using testing::Path;
using testing::RigConfig;

// Outputs are averages of values that lie within about 4; kept rows are compared as they were kept,
// so the type does not matter. Measured: at most 9e-7.
constexpr double kTolerance = 5e-6;

struct TypeCase {
    KvType type_k;
    KvType type_v;
    double kept_tolerance;  // of keys and values drawn from a normal distribution, some near 4
};

std::ostream& operator<<(std::ostream& out, const TypeCase& c) {
    return out << name(c.type_k) << '_' << name(c.type_v);
}

class AttentionTypeTest : public ::testing::TestWithParam<std::tuple<TypeCase, Path>> {
protected:
    static RigConfig config() {
        const auto& [types, path] = GetParam();
        RigConfig config;
        config.type_k = types.type_k;
        config.type_v = types.type_v;
        config.path = path.options;
        config.split.max_ubatch = 24;
        return config;
    }
};

TEST_P(AttentionTypeTest, EqualsTheReferenceThroughAHistory) {
    AttentionRig rig(config());
    rig.expect_through_a_history(kTolerance);
    EXPECT_LE(rig.kept_error(), std::get<0>(GetParam()).kept_tolerance);
}

// More queries than a tile of ggml's flash attention has rows.
TEST_P(AttentionTypeTest, EqualsTheReferenceForALongPrompt) {
    RigConfig long_ubatch = config();
    long_ubatch.split.max_ubatch = 512;
    AttentionRig rig(long_ubatch);
    EXPECT_LE(rig.append({0}, 150), kTolerance);
    EXPECT_LE(rig.append({1, 0}, 70), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Types, AttentionTypeTest,
    ::testing::Combine(::testing::Values(TypeCase{KvType::kF32, KvType::kF32, 0},
                                         TypeCase{KvType::kF16, KvType::kF16, 2e-3},
                                         TypeCase{KvType::kBf16, KvType::kBf16, 2e-2},
                                         TypeCase{KvType::kQ8_0, KvType::kQ8_0, 2e-2},
                                         TypeCase{KvType::kQ5_0, KvType::kQ5_1, 0.5},
                                         TypeCase{KvType::kQ4_0, KvType::kQ4_1, 0.7},
                                         TypeCase{KvType::kIq4Nl, KvType::kIq4Nl, 0.7},
                                         TypeCase{KvType::kQ8_0, KvType::kF16, 2e-2},
                                         TypeCase{KvType::kF32, KvType::kQ4_0, 0.7}),
                       kPaths),
    [](const auto& test) {
        return ::testing::PrintToString(std::get<0>(test.param)) + "_" +
               std::get<1>(test.param).name;
    });

struct ScoreCase {
    const char* name;
    LayerKv layer;
    uint32_t n_head;
    AttendParams params;
};

class AttentionScoreTest : public ::testing::TestWithParam<std::tuple<ScoreCase, Path>> {};

TEST_P(AttentionScoreTest, EqualsTheReference) {
    const auto& [score, path] = GetParam();
    RigConfig config;
    config.layer = score.layer;
    config.n_head = score.n_head;
    config.params = score.params;
    config.path = path.options;
    AttentionRig rig(config);
    EXPECT_LE(rig.append({0}, 45), kTolerance);
    rig.fork(0, 1);
    EXPECT_LE(rig.append({0, 1}, 3), kTolerance);  // together: they share a prompt
    if (path.is_graph()) {
        EXPECT_EQ(shape_of(rig.plan()).n_streams, 1);
    }
    EXPECT_LE(rig.append({2, 3}, 40), kTolerance);  // apart: they share nothing
    if (path.is_graph()) {
        EXPECT_EQ(shape_of(rig.plan()).n_streams, 2);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Scores, AttentionScoreTest,
    ::testing::Combine(
        ::testing::Values(ScoreCase{"one_head", {0, 1, 32, 32}, 1, {0.2f, 0, 0}},
                          ScoreCase{"a_key_head_each", {0, 3, 32, 32}, 3, {0.2f, 0, 0}},
                          ScoreCase{"nine_heads_on_three", {0, 3, 64, 64}, 9, {0.125f, 0, 0}},
                          ScoreCase{"one_key_head_for_all", {0, 1, 64, 64}, 6, {0.125f, 0, 0}},
                          ScoreCase{"narrow_values", {0, 2, 64, 32}, 4, {0.125f, 0, 0}},
                          ScoreCase{"odd_width", {0, 2, 20, 12}, 4, {0.2f, 0, 0}},
                          ScoreCase{"softcap", {0, 2, 32, 32}, 4, {0.4f, 0, 3.0f}},
                          ScoreCase{"alibi", {0, 2, 32, 32}, 4, {0.2f, 8.0f, 0}},
                          ScoreCase{"alibi_of_six_heads", {0, 2, 32, 32}, 6, {0.2f, 8.0f, 0}},
                          ScoreCase{"alibi_and_softcap", {0, 2, 32, 32}, 4, {0.4f, 4.0f, 3.0f}}),
        kPaths),
    [](const auto& test) {
        return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
    });

class AttentionTest : public ::testing::TestWithParam<Path> {
protected:
    AttentionTest() { config_.path = GetParam().options; }

    RigConfig config_;
};

TEST_P(AttentionTest, ItemsOfSequencesMayAlternate) {
    AttentionRig rig(config_);
    Batch batch;
    for (int i = 0; i < 40; i++) {
        for (const int seq : {2, 0, 1})
            batch.add(0, SeqId{seq});
    }
    EXPECT_LE(rig.run(batch), kTolerance);
    if (!GetParam().is_graph()) return;
    EXPECT_EQ(shape_of(rig.plan()).n_streams, 3);
    EXPECT_FALSE(shape_of(rig.plan()).in_order);
}

TEST_P(AttentionTest, SharedItemsAreSeenByAllTheirSequences) {
    AttentionRig rig(config_);
    rig.append({0}, 10);
    rig.fork(0, 1);
    Batch batch;
    const std::array both{SeqId{0}, SeqId{1}};
    for (int i = 0; i < 5; i++)
        batch.add(0, both);
    for (int i = 0; i < 3; i++)
        batch.add(0, SeqId{1});
    for (int i = 0; i < 4; i++)
        batch.add(0, SeqId{0});
    EXPECT_LE(rig.run(batch), kTolerance);
    EXPECT_EQ(read_cells(rig.plan()), 22);
    EXPECT_LE(rig.append({0, 1}, 1), kTolerance);
}

// A fork whose tail page is copied for the very ubatch reads its old cells where they stood.
TEST_P(AttentionTest, AForkReadsItsTailWhileItIsCopied) {
    AttentionRig rig(config_);
    rig.append({0}, 13);
    rig.fork(0, 1);
    EXPECT_LE(rig.append({0}, 1), kTolerance);
    EXPECT_LE(rig.append({1}, 1), kTolerance);
    EXPECT_LE(rig.append({0, 1}, 12), kTolerance);
}

// With vectors the cells of an image share their time, and see each other.
TEST_P(AttentionTest, CellsOfOneTimeSeeEachOther) {
    config_.n_pos = 4;
    AttentionRig rig(config_);
    Batch batch(4);
    const SeqId seq{0};
    batch.add(0, seq);
    for (Pos row = 0; row < 3; row++) {
        for (Pos column = 0; column < 3; column++) {
            batch.add_at(kNoToken, std::span<const SeqId>(&seq, 1),
                         std::array<Pos, 4>{1, row, column, 0});
        }
    }
    batch.add(0, seq);
    // The naive model enters a whole ubatch before it compares: later cells of the image count too.
    EXPECT_LE(rig.run(batch), kTolerance);
    EXPECT_EQ(attended_cells(rig.plan()), 1 + 9 * 10 + 11);
}

TEST_P(AttentionTest, AFullPoolIsAttended) {
    config_.n_cells = 64;
    AttentionRig rig(config_);
    EXPECT_LE(rig.append({0, 1}, 32), kTolerance);
    EXPECT_EQ(rig.memory().cells().pool(0).n_free(), 0);
    rig.remove_tail(0, 0);
    EXPECT_LE(rig.append({1}, 32), kTolerance);
}

// Sequences shared and private, of which the last step's queries stand at 9, 64 and 59.
void share_and_part(AttentionRig& rig) {
    EXPECT_LE(rig.append({0}, 61), kTolerance);
    rig.fork(0, 1);
    EXPECT_LE(rig.append({0, 1}, 3), kTolerance);
    rig.remove_tail(1, 50);
    EXPECT_LE(rig.append({1, 2}, 9), kTolerance);
    EXPECT_LE(rig.append({2, 0, 1}, 1), kTolerance);
}

RigConfig of_kind(GroupKind kind, const AttentionOptions& path) {
    RigConfig config;
    config.path = path;
    config.kind = kind;
    config.split.max_ubatch = 24;
    return config;
}

// Windows shorter than a page, than a ubatch, and longer than both.
TEST_P(AttentionTest, AWindowHidesWhatStandsBeforeIt) {
    for (const uint32_t window : {1u, 5u, 16u, 40u}) {
        AttentionRig rig(of_kind(GroupKind::sliding(window), GetParam().options));
        share_and_part(rig);
        EXPECT_EQ(attended_cells(rig.plans().back()),
                  std::min(window, 10u) + std::min(window, 65u) + std::min(window, 60u));
        EXPECT_LE(read_cells(rig.plans().back()), attended_cells(rig.plans().back()));
    }
}

TEST_P(AttentionTest, AChunkBeginsAnewAtMultiplesOfItsLength) {
    for (const uint32_t length : {1u, 6u, 16u, 40u}) {
        AttentionRig rig(of_kind(GroupKind::chunked(length), GetParam().options));
        share_and_part(rig);
        EXPECT_EQ(attended_cells(rig.plans().back()), 9 % length + 64 % length + 59 % length + 3);
    }
}

// Encoders: whole sequences in a ubatch, each item seeing those behind it too.
TEST_P(AttentionTest, EncodersSeeBothSides) {
    for (const GroupKind kind : {GroupKind::whole(), GroupKind::symmetric(1),
                                 GroupKind::symmetric(9), GroupKind::symmetric(64)}) {
        RigConfig config;
        config.path = GetParam().options;
        config.kind = kind;
        config.split.whole_sequences = true;
        config.split.max_ubatch = 128;
        AttentionRig rig(config);
        EXPECT_LE(rig.append({0}, 40), kTolerance);
        uint64_t pairs = 0;
        for (Pos query = 0; query < 40; query++)
            for (Pos key = 0; key < 40; key++)
                pairs += kind.sees(query).contains(key) ? 1 : 0;
        EXPECT_EQ(attended_cells(rig.plans().back()), pairs);
        EXPECT_LE(rig.append({1, 2, 3}, 25), kTolerance);
    }
}

TEST(GroupKind, SymmetricWindowsAreThoseOfEncoderMasks) {
    for (const uint32_t window : {1u, 2u, 9u, 64u})
        for (Pos query = 0; query < 80; query++)
            for (Pos key = 0; key < 80; key++)
                EXPECT_EQ(GroupKind::symmetric(window).sees(query).contains(key),
                          encoder_sees(query, key, window));
}

TEST_P(AttentionTest, AWindowOverSpansThatLieOverEachOther) {
    RigConfig config;
    config.path = GetParam().options;
    config.kind = GroupKind::sliding(8);
    AttentionRig rig(config);
    EXPECT_LE(rig.append({0}, 40), kTolerance);
    rig.shift(0, 20, -13, [](const std::vector<float>& key, Pos) { return key; });
    EXPECT_LE(rig.append({0}, 1), kTolerance);
    EXPECT_EQ(attended_cells(rig.plan()), 8);
    rig.shift(0, 22, -4, [](const std::vector<float>& key, Pos) { return key; });
    EXPECT_LE(rig.append({0}, 3), kTolerance);
}

// Weights without values, and what T5 adds by distance, with all that a score can have besides.
TEST_P(AttentionTest, SinksAndBiasesByDistanceCount) {
    const ggml_context_ptr ctx(
        ggml_init({.mem_size = 16384, .mem_buffer = nullptr, .no_alloc = false}));
    const auto drawn = [&](int64_t a, int64_t b) {
        ggml_tensor* tensor = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, a, b);
        std::mt19937 random{7};
        std::normal_distribution<float> normal(0, 2);
        for (int64_t i = 0; i < a * b; i++)
            static_cast<float*>(tensor->data)[i] = normal(random);
        return tensor;
    };
    ggml_tensor* sinks = drawn(4, 1);
    ggml_tensor* bias = drawn(4, 16);
    struct Params {
        AttendParams params;
        double tolerance;
    };
    // Biases pass through an f16 mask on their way to flash attention.
    const double rounded = GetParam().is_graph() && GetParam().options.flash ? 4e-3 : kTolerance;
    for (const auto& [params, tolerance] :
         {Params{{.scale = 0.3f, .sinks = sinks}, kTolerance},
          Params{{.scale = 0.3f, .bias = bias, .buckets = {16, 40, true}}, rounded},
          Params{{.scale = 0.3f,
          .softcap = 3,
          .sinks = sinks,
          .bias = bias,
          .buckets = {16, 40, false}},
                 rounded}}) {
        RigConfig config = config_;
        config.params = params;
        AttentionRig rig(config);
        EXPECT_LE(rig.append({0}, 61), tolerance);
        rig.fork(0, 1);
        EXPECT_LE(rig.append({0, 1}, 1), tolerance);
        EXPECT_LE(rig.append({1, 2}, 7), tolerance);
        EXPECT_LE(rig.append({0}, 1), tolerance);
    }
}

INSTANTIATE_TEST_SUITE_P(Paths, AttentionTest, kPaths,
                         [](const auto& test) { return std::string(test.param.name); });

// One graph serves all ubatches of its shape, as decode steps use it.
TEST(AttentionShapeTest, StepsOfOneLengthClassShareAShape) {
    RigConfig config;
    config.path.path = AttentionPath::kGraph;
    AttentionRig rig(config);
    rig.append({0}, 40);
    rig.append({0}, 1);
    const AttentionShape shape = shape_of(rig.plan());
    for (int i = 0; i < 20; i++) {
        rig.append({0}, 1);
        EXPECT_EQ(shape_of(rig.plan()), shape);
    }
}

TEST(AttentionShapeTest, NoShapeOfOneStreamIsWiderThanTheWidest) {
    RigConfig config;
    config.n_cells = 96;
    config.path.path = AttentionPath::kGraph;
    AttentionRig rig(config);
    const AttentionShape widest = widest_shape(rig.memory(), 0, 96, config.path);
    rig.append({0, 1}, 48);
    EXPECT_LE(length_class(static_cast<uint32_t>(read_cells(rig.plan()))), widest.length);
}

}  // namespace
}  // namespace cellar
