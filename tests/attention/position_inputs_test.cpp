// Positions as models take them, besides plain rotary ones, each against a plain reference.

#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "attention/alibi.h"
#include "attention/encoder_mask.h"
#include "attention/mrope.h"
#include "attention/reference.h"
#include "attention/relative_buckets.h"
#include "attention/rope.h"

namespace cellar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Tensors and one graph on them.
class Graph {
public:
    Graph() : ctx_(ggml_init({.mem_size = 16 << 20, .mem_buffer = nullptr, .no_alloc = false})) {}

    ggml_context* ctx() { return ctx_.get(); }

    template <class T>
    ggml_tensor* tensor(ggml_type type, std::array<int64_t, 3> ne, const std::vector<T>& values) {
        ggml_tensor* tensor = ggml_new_tensor_3d(ctx(), type, ne[0], ne[1], ne[2]);
        std::copy(values.begin(), values.end(), static_cast<T*>(tensor->data));
        return tensor;
    }

    std::vector<float> compute(ggml_tensor* result) {
        ggml_cgraph* graph = ggml_new_graph(ctx());
        ggml_build_forward_expand(graph, result);
        ggml_graph_compute_with_ctx(ctx(), graph, 1);
        const auto* values = static_cast<const float*>(result->data);
        return {values, values + ggml_nelements(result)};
    }

private:
    ggml_context_ptr ctx_;
};

std::vector<float> random_values(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    std::generate(values.begin(), values.end(), [&] { return normal(random); });
    return values;
}

std::vector<Pos> count_up(Pos begin, size_t n) {
    std::vector<Pos> positions(n);
    std::generate(positions.begin(), positions.end(), [&] { return begin++; });
    return positions;
}

void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs, float bound) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); i++)
        ASSERT_NEAR(ours[i], theirs[i], bound) << "at " << i;
}

// -- ALiBi -----------------------------------------------------------------------------------

TEST(AlibiTest, SlopesOfThePaper) {
    for (uint32_t head = 0; head < 8; head++)
        EXPECT_DOUBLE_EQ(alibi_slope(head, 8, 8), std::pow(0.5, head + 1));
    for (uint32_t head = 0; head < 16; head++)
        EXPECT_DOUBLE_EQ(alibi_slope(head, 16, 8), std::pow(0.5, 0.5 * (head + 1)));
    // 12 heads: those of 8, then the first, third, ... of 16.
    for (uint32_t head = 0; head < 8; head++)
        EXPECT_DOUBLE_EQ(alibi_slope(head, 12, 8), alibi_slope(head, 8, 8));
    for (uint32_t head = 8; head < 12; head++)
        EXPECT_DOUBLE_EQ(alibi_slope(head, 12, 8), alibi_slope(2 * (head - 8), 16, 8));
    EXPECT_EQ(alibi_slope(3, 12, 0), 0);
}

TEST(AlibiTest, BiasesFallWithTheDistanceOnBothSides) {
    std::vector<float> biases(6);
    fill_alibi_biases(std::array<Pos, 2>{3, 1}, std::array<Pos, 3>{0, 3, 5}, 0.5, biases);
    EXPECT_EQ(biases, (std::vector<float>{-1.5f, 0, -1, -0.5f, -1, -2}));
    fill_alibi_biases(std::array<Pos, 1>{0}, std::array<Pos, 1>{kMaxPos}, 1,
                      std::span<float>(biases).first(1));
    EXPECT_EQ(biases[0], -2147483648.0f);
}

// softmax(scores + our biases) is what ggml makes of scores and distances.
TEST(AlibiTest, BiasesAreThoseOfGgmlForAnyCountOfHeads) {
    constexpr int64_t kKeys = 24, kQueries = 4;
    const std::vector<Pos> queries = count_up(20, kQueries);
    const std::vector<Pos> keys = count_up(0, kKeys);
    std::vector<float> distances(kKeys * kQueries);
    fill_alibi_biases(queries, keys, 1, distances);
    for (const int64_t n_head : {1, 2, 3, 4, 7, 12, 20}) {
        for (const float max_bias : {8.0f, 4.0f}) {
            const auto n = static_cast<size_t>(kKeys * kQueries * n_head);
            const std::vector<float> scores = random_values(n, 5);
            std::vector<float> biased = scores;
            for (int64_t head = 0; head < n_head; head++) {
                const double slope = alibi_slope(static_cast<uint32_t>(head),
                                                 static_cast<uint32_t>(n_head), max_bias);
                std::vector<float> biases(distances.size());
                fill_alibi_biases(queries, keys, slope, biases);
                for (size_t i = 0; i < biases.size(); i++)
                    biased[static_cast<size_t>(head) * biases.size() + i] += biases[i];
            }
            Graph graph;
            const std::array<int64_t, 3> ne{kKeys, kQueries, n_head};
            ggml_tensor* mask = graph.tensor(GGML_TYPE_F32, {kKeys, kQueries, 1}, distances);
            const auto theirs = graph.compute(ggml_soft_max_ext(
                graph.ctx(), graph.tensor(GGML_TYPE_F32, ne, scores), mask, 1, max_bias));
            const auto ours =
                graph.compute(ggml_soft_max(graph.ctx(), graph.tensor(GGML_TYPE_F32, ne, biased)));
            expect_near(ours, theirs, 1e-5f);
        }
    }
}

// -- T5's relative positions -----------------------------------------------------------------

// Of 32 buckets up to distance 128, where each of one direction's 16 begins.
constexpr std::array<Pos, 16> kBegins{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};

TEST(RelativeBucketsTest, OfAnEncoderOfThirtyTwoBuckets) {
    const RelativeBuckets t5;
    for (Pos distance = 0; distance < 300; distance++) {
        const auto begin = std::upper_bound(kBegins.begin(), kBegins.end(), distance);
        const auto bucket = static_cast<uint32_t>(begin - kBegins.begin() - 1);
        EXPECT_EQ(relative_bucket(t5, 1000, 1000 - distance), bucket) << distance;
        const uint32_t upper = distance > 0 ? 16 : 0;
        EXPECT_EQ(relative_bucket(t5, 1000, 1000 + distance), bucket + upper) << distance;
    }
}

// A direction's bucket without logarithms: bucket n/2 + i holds the distances d that reach
// (d / (n/2))^(n - n/2) >= (max / (n/2))^i, for the greatest such i.
uint32_t plain_bucket(int64_t distance, uint32_t n, uint32_t max_distance) {
    const uint32_t half = n / 2;
    if (distance < half) return static_cast<uint32_t>(distance);
    const auto power = [](long double base, uint32_t exponent) {
        long double product = 1;
        for (uint32_t i = 0; i < exponent; i++)
            product *= base;
        return product;
    };
    const long double reached = power(static_cast<long double>(distance) / half, n - half);
    uint32_t i = 0;
    while (i + 1 < n - half &&
           reached >= power(static_cast<long double>(max_distance) / half, i + 1))
        i++;
    return half + i;
}

TEST(RelativeBucketsTest, AreThoseOfThePlainRuleForAnyCountAndReach) {
    for (const uint32_t n_buckets : {4u, 8u, 32u, 64u}) {
        for (const uint32_t max_distance : {33u, 64u, 128u, 1000u}) {
            const RelativeBuckets both{n_buckets, max_distance, true};
            const RelativeBuckets causal{n_buckets, max_distance, false};
            for (Pos distance = 0; distance < 1200; distance++) {
                const uint32_t half = n_buckets / 2;
                const uint32_t of_both = plain_bucket(distance, half, max_distance);
                ASSERT_EQ(relative_bucket(both, 5000, 5000 - distance), of_both) << distance;
                ASSERT_EQ(relative_bucket(both, 5000, 5000 + distance),
                          of_both + (distance > 0 ? half : 0));
                ASSERT_EQ(relative_bucket(causal, 5000, 5000 - distance),
                          plain_bucket(distance, n_buckets, max_distance))
                    << distance;
                ASSERT_EQ(relative_bucket(causal, 5000, 5000 + distance), 0u);
            }
        }
    }
}

TEST(RelativeBucketsTest, PairsAreLaidOutByQuery) {
    std::vector<int32_t> buckets(6);
    fill_relative_buckets({}, std::array<Pos, 2>{0, kMaxPos}, std::array<Pos, 3>{0, 1, kMaxPos},
                          buckets);
    EXPECT_EQ(buckets, (std::vector<int32_t>{0, 17, 31, 15, 15, 0}));
}

// -- M-RoPE ----------------------------------------------------------------------------------

// Five tokens of text, an image of 4 rows and 6 columns, five more tokens.
std::vector<MropePos> text_image_text() {
    const PatchGrid image{1, 4, 6};
    std::vector<MropePos> positions;
    positions.reserve(34);
    for (Pos pos = 0; pos < 5; pos++)
        positions.push_back(mrope_text(pos));
    for (uint32_t i = 0; i < 24; i++)
        positions.push_back(mrope_patch(image, 5, i));
    for (Pos pos = 5 + static_cast<Pos>(mrope_extent(image)); pos < 16; pos++)
        positions.push_back(mrope_text(pos));
    return positions;
}

TEST(MropeTest, PatchesOfAnImageShareTheirTimeAndTextFollowsItsLongestSide) {
    const std::vector<MropePos> positions = text_image_text();
    ASSERT_EQ(positions.size(), 34u);
    EXPECT_EQ(positions[4], (MropePos{4, 4, 4, 0}));
    EXPECT_EQ(positions[5], (MropePos{5, 5, 5, 0}));
    EXPECT_EQ(positions[10], (MropePos{5, 5, 10, 0}));
    EXPECT_EQ(positions[11], (MropePos{5, 6, 5, 0}));
    EXPECT_EQ(positions[28], (MropePos{5, 8, 10, 0}));
    EXPECT_EQ(positions[29], (MropePos{11, 11, 11, 0}));
    for (size_t i = 1; i < positions.size(); i++)
        EXPECT_GE(positions[i][0], positions[i - 1][0]) << "what a memory takes";
}

TEST(MropeTest, FramesOfAVideoCountUp) {
    const PatchGrid video{8, 2, 3};
    EXPECT_EQ(mrope_patch(video, 10, 6), (MropePos{11, 10, 10, 0}));
    EXPECT_EQ(mrope_patch(video, 10, 47), (MropePos{17, 11, 12, 0}));
    EXPECT_EQ(mrope_extent(video), 8u);
}

// Pair i of a head, dimensions i and i + d/2, turns by its section's component times base^(-2i/d).
std::vector<float> plain_mrope(const std::vector<float>& x, const std::vector<MropePos>& positions,
                               const std::array<int, 4>& sections, size_t head_dim) {
    std::vector<float> turned = x;
    const size_t pairs = head_dim / 2;
    for (size_t token = 0; token < positions.size(); token++) {
        size_t section = 0, left = static_cast<size_t>(sections[0]);
        for (size_t i = 0; i < pairs; i++, left--) {
            if (left == 0) left = static_cast<size_t>(sections[++section]);
            const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
            const double angle = positions[token][section] * std::pow(10000.0, exponent);
            const size_t a = token * head_dim + i, b = a + pairs;
            turned[a] = static_cast<float>(x[a] * std::cos(angle) - x[b] * std::sin(angle));
            turned[b] = static_cast<float>(x[a] * std::sin(angle) + x[b] * std::cos(angle));
        }
    }
    return turned;
}

TEST(MropeTest, GgmlTurnsEachSectionByItsComponent) {
    constexpr int64_t kHeadDim = 32;
    std::array<int, 4> sections{8, 4, 4, 0};
    const std::vector<MropePos> positions = text_image_text();
    const size_t n = positions.size();
    const std::vector<float> x = random_values(n * kHeadDim, 7);
    std::vector<int32_t> by_component;
    for (size_t c = 0; c < 4; c++) {
        for (const MropePos& pos : positions)
            by_component.push_back(pos[c]);
    }
    Graph graph;
    const auto n_tokens = static_cast<int64_t>(n);
    const auto theirs = graph.compute(
        ggml_rope_multi(graph.ctx(), graph.tensor(GGML_TYPE_F32, {kHeadDim, 1, n_tokens}, x),
                        graph.tensor(GGML_TYPE_I32, {n_tokens * 4, 1, 1}, by_component), nullptr,
                        kHeadDim, sections.data(), GGML_ROPE_TYPE_MROPE, 0, 10000, 1, 0, 1, 32, 1));
    expect_near(plain_mrope(x, positions, sections, kHeadDim), theirs, 1e-5f);
}

// Keys that were turned by vectors, and then by a delta, stand where vectors moved by it would have
// put them: in each section, whatever the component.
TEST(MropeTest, ADeltaMovesEveryComponent) {
    constexpr int64_t kHeadDim = 32, kHeads = 2;
    constexpr Pos kDelta = -3;
    const std::vector<MropePos> positions = text_image_text();
    const auto n = static_cast<int64_t>(positions.size());
    const std::vector<float> x =
        random_values(positions.size() * static_cast<size_t>(kHeadDim * kHeads), 8);
    Rope rope;
    rope.n_dims = kHeadDim;
    rope.sections = {6, 5, 5, 0};
    for (const int mode : {GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_IMROPE}) {
        rope.mode = mode;
        Graph graph;
        const auto turned = [&](Pos moved) {
            std::vector<int32_t> by_component;
            for (size_t c = 0; c < 4; c++) {
                for (const MropePos& pos : positions)
                    by_component.push_back(pos[c] + moved);
            }
            return apply_rope(graph.ctx(), graph.tensor(GGML_TYPE_F32, {kHeadDim, kHeads, n}, x),
                              graph.tensor(GGML_TYPE_I32, {n * 4, 1, 1}, by_component), rope);
        };
        ggml_tensor* rows = ggml_reshape_2d(graph.ctx(), turned(0), kHeadDim * kHeads, n);
        const std::vector<Pos> deltas(positions.size(), kDelta);
        const auto further = graph.compute(turn_rows(
            graph.ctx(), rows, kHeads, graph.tensor(GGML_TYPE_I32, {n, 1, 1}, deltas), rope));
        expect_near(further, graph.compute(turned(kDelta)), 1e-5f);
    }
}

// -- Masks of encoders -----------------------------------------------------------------------

TEST(EncoderMaskTest, WithoutAWindowEverythingOfTheSequenceIsSeen) {
    std::vector<float> mask(9);
    fill_encoder_mask(std::array{SeqId{0}, SeqId{0}, SeqId{1}}, std::array<Pos, 3>{0, 1, 0}, 0,
                      mask);
    EXPECT_EQ(mask, (std::vector<float>{0, 0, -kInf, 0, 0, -kInf, -kInf, -kInf, 0}));
}

TEST(EncoderMaskTest, AWindowShowsHalfOfItOnEachSide) {
    for (Pos key = 0; key < 20; key++) {
        EXPECT_EQ(encoder_sees(10, key, 6), key >= 7 && key <= 13) << key;
        EXPECT_EQ(encoder_sees(10, key, 7), key >= 7 && key <= 13) << key;
        EXPECT_EQ(encoder_sees(10, key, 1), key == 10) << key;
        EXPECT_TRUE(encoder_sees(10, key, 0));
    }
    EXPECT_FALSE(encoder_sees(0, kMaxPos, 6));
    EXPECT_TRUE(encoder_sees(0, kMaxPos, 0xffffffff));
}

// Two sequences in one batch, out of order: attention over the mask is attention over what is seen.
TEST(EncoderMaskTest, AttentionSeesWhatItShows) {
    constexpr int64_t kDim = 16, kTokens = 24;
    constexpr uint32_t kWindow = 6;
    std::vector<SeqId> seqs;
    std::vector<Pos> positions;
    for (Pos i = 0; i < kTokens; i++) {
        seqs.push_back(SeqId{i % 3 == 0 ? 1 : 0});
        positions.push_back(static_cast<Pos>(i * 5 % kTokens));
    }
    std::vector<float> mask(kTokens * kTokens);
    fill_encoder_mask(seqs, positions, kWindow, mask);
    const auto q = random_values(kDim * kTokens, 1);
    const auto k = random_values(kDim * kTokens, 2);
    const auto v = random_values(kDim * kTokens, 3);
    Graph graph;
    ggml_context* ctx = graph.ctx();
    const std::array<int64_t, 3> ne{kDim, kTokens, 1};
    ggml_tensor* scores =
        ggml_mul_mat(ctx, graph.tensor(GGML_TYPE_F32, ne, k), graph.tensor(GGML_TYPE_F32, ne, q));
    scores = ggml_soft_max_ext(ctx, scores,
                               graph.tensor(GGML_TYPE_F32, {kTokens, kTokens, 1}, mask), 0.25f, 0);
    ggml_tensor* columns = ggml_cont(ctx, ggml_transpose(ctx, graph.tensor(GGML_TYPE_F32, ne, v)));
    const auto theirs = graph.compute(ggml_mul_mat(ctx, columns, scores));

    const auto token_row = [](const std::vector<float>& rows, size_t token) {
        return std::span<const float>(rows).subspan(token * kDim, kDim);
    };
    for (size_t query = 0; query < kTokens; query++) {
        std::vector<SeenRow> seen;
        for (size_t key = 0; key < kTokens; key++) {
            const Pos apart = positions[query] - positions[key];
            if (seqs[query] == seqs[key] && apart >= -3 && apart <= 3)
                seen.push_back({positions[key], token_row(k, key), token_row(v, key)});
        }
        const auto ours = reference_attention({0, 1, kDim, kDim}, token_row(q, query),
                                              positions[query], seen, {.scale = 0.25f});
        for (size_t d = 0; d < kDim; d++)
            ASSERT_NEAR(ours[d], theirs[query * kDim + d], 1e-5) << query;
    }
}

}  // namespace
}  // namespace cellar
