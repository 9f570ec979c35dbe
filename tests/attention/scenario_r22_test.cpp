#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "attention/attention_rig.h"
#include "attention/mrope.h"
#include "attention/rope.h"
#include "cells/audit.h"

// Positions are vectors: text, an image, and text behind it.

namespace cellar {
namespace {

using testing::AttentionRig;
using testing::kPaths;
using testing::Path;
using testing::RigConfig;

constexpr double kTolerance = 1e-5;
constexpr PatchGrid kImage{1, 4, 6};
constexpr Pos kText = 5;  // tokens before the image, and behind it
constexpr std::array<int, 4> kSections{8, 4, 4, 0};
constexpr size_t kHeadDim = 32;

// A key whose every component moved by `delta`, section by section.
std::vector<float> turned(std::vector<float> key, Pos delta) {
    for (size_t head = 0; head < key.size(); head += kHeadDim) {
        for (size_t pair = 0; pair < kHeadDim / 2; pair++) {
            const double exponent = -2.0 * static_cast<double>(pair) / kHeadDim;
            const double angle = delta * std::pow(10000.0, exponent);
            float& x = key[head + pair];
            float& y = key[head + pair + kHeadDim / 2];
            const double x0 = static_cast<double>(x), y0 = static_cast<double>(y);
            x = static_cast<float>(x0 * std::cos(angle) - y0 * std::sin(angle));
            y = static_cast<float>(x0 * std::sin(angle) + y0 * std::cos(angle));
        }
    }
    return key;
}

class ScenarioR22 : public ::testing::TestWithParam<Path> {
protected:
    ScenarioR22() {
        rope_.mode = GGML_ROPE_TYPE_MROPE;
        rope_.n_dims = kHeadDim;
        rope_.sections = kSections;
        RigConfig config;
        config.n_pos = 4;
        config.path = GetParam().options;
        config.params.rope = &rope_;
        rig_ = std::make_unique<AttentionRig>(config);
    }

    void add_text(Pos begin) {
        Batch batch(4);
        for (Pos pos = begin; pos < begin + kText; pos++)
            batch.add_at(1, std::array{kSeq}, mrope_text(pos));
        EXPECT_LE(rig_->run(batch), kTolerance);
    }

    // Patches [first, end) of an image that begins at `begin`.
    void add_patches(Pos begin, uint32_t first, uint32_t end) {
        Batch batch(4);
        for (uint32_t i = first; i < end; i++)
            batch.add_at(kNoToken, std::array{kSeq}, mrope_patch(kImage, begin, i));
        EXPECT_LE(rig_->run(batch), kTolerance);
    }

    Memory& memory() { return rig_->memory(); }
    uint32_t n_cells() { return memory().cells().n_cells(kSeq, 0); }

    static constexpr SeqId kSeq{0};
    Rope rope_;
    std::unique_ptr<AttentionRig> rig_;
};

TEST_P(ScenarioR22, PositionsAreVectors) {
    add_text(0);
    for (const uint32_t first : {0u, 8u, 16u})  // three batches
        add_patches(kText, first, first + 8);
    const Pos behind = kText + static_cast<Pos>(mrope_extent(kImage));
    EXPECT_EQ(memory().seq_pos_max(kSeq), kText);
    EXPECT_EQ(n_cells(), 29u);
    add_text(behind);
    // 16 positions, 34 cells, 10 of them of tokens.
    EXPECT_EQ(memory().seq_pos_max(kSeq), 15);
    EXPECT_EQ(n_cells(), 34u);
    EXPECT_EQ(behind, 11);

    const auto refused = memory().seq_div(kSeq, kText, kText + 1, 2);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_TRUE(memory().pending().empty());
    EXPECT_EQ(memory().seq_pos_max(kSeq), 15);

    ASSERT_TRUE(memory().can_shift());
    rig_->remove_range(0, kText, kText + 1);
    rig_->shift(0, behind, kText - behind, turned);
    EXPECT_EQ(memory().seq_pos_max(kSeq), 9);
    EXPECT_EQ(n_cells(), 10u);
    EXPECT_EQ(audit(memory().cells()), std::nullopt);
    add_text(10);  // against keys that were turned to their new positions in double precision
    EXPECT_EQ(memory().seq_pos_max(kSeq), 14);
}

// An image that moves keeps its shape.
TEST_P(ScenarioR22, ImagesMove) {
    add_text(0);
    add_patches(kText, 0, 24);
    rig_->remove_range(0, 1, kText);
    rig_->shift(0, kText, 1 - kText, turned);
    EXPECT_EQ(memory().seq_pos_max(kSeq), 1);
    add_text(1 + static_cast<Pos>(mrope_extent(kImage)));
    EXPECT_EQ(n_cells(), 30u);
}

TEST_P(ScenarioR22, TextBesideAnImageIsDivided) {
    add_text(0);
    add_patches(kText, 0, 24);
    ASSERT_TRUE(memory().seq_div(kSeq, 0, kText, 2));
    EXPECT_FALSE(memory().pending().empty());
}

INSTANTIATE_TEST_SUITE_P(Paths, ScenarioR22, kPaths,
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace cellar
