// Scenarios that must hold for any attention memory, on tensors: each ends in logits that equal
// those of a fresh memory (O), with NaN in every cell that nobody sees.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "cells/audit.h"
#include "engine/decoding.h"
#include "model/stepper.h"
#include "testing/poison.h"
#include "testing/seen_hash.h"

namespace cellar {
namespace {

using testing::Decoding;
using testing::max_difference;
using testing::poison;
using testing::Row;
using testing::seen_hash;
using testing::tiny_llama;

constexpr float kTolerance = 1e-3f;  // f32 keys and values; logits lie within about 1

DecoderOptions options(uint32_t n_cells, uint32_t page_size, uint32_t max_ubatch = 64) {
    DecoderOptions options;
    options.n_cells = n_cells;
    options.page_size = page_size;
    options.max_ubatch = max_ubatch;
    options.type_k = options.type_v = KvType::kF32;
    return options;
}

// `n` tokens that depend on `salt` alone.
std::vector<Token> text(uint32_t n, uint32_t salt) {
    std::vector<Token> tokens(n);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = static_cast<Token>((i * 37 + salt * 11 + i * i) % 128);
    return tokens;
}

std::vector<Token> join(std::vector<Token> a, const std::vector<Token>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// The logits behind `tokens` in a memory that never held anything else.
Row fresh(const std::vector<Token>& tokens) {
    Decoding decoding(tiny_llama(), options(4096, 32));
    return decoding.append(SeqId{0}, tokens);
}

// Cuts `tokens` off behind the first `n`.
std::vector<Token> first(const std::vector<Token>& tokens, size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)};
}

TEST(ScenarioR7, BystanderSurvivesAFullPool) {
    Decoding decoding(tiny_llama(), options(512, 1));
    const std::vector<Token> a = text(300, 1), b = text(212, 2);
    decoding.append(SeqId{0}, a);
    decoding.append(SeqId{1}, b);

    Batch batch;
    batch.add(5, SeqId{0}, kNextPos, true);
    batch.add(6, SeqId{1}, kNextPos, true);
    const auto refused = decoding.decoder().decode(batch, [](size_t, std::span<const float>) {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_NE(refused.error().message.find("2 more cells"), std::string::npos);
    EXPECT_NE(refused.error().message.find("0 are free"), std::string::npos);
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{0}), 299);
    EXPECT_EQ(decoding.memory().seq_pos_max(SeqId{1}), 211);

    // One is parked, the other goes on at the first attempt; then the parked one resumes.
    ASSERT_TRUE(decoding.memory().seq_rm(SeqId{1}, -1, -1));
    poison(decoding.memory());
    EXPECT_LE(max_difference(decoding.append(SeqId{0}, {5}), fresh(join(a, {5}))), kTolerance);
    ASSERT_TRUE(decoding.memory().seq_rm(SeqId{0}, -1, -1));
    poison(decoding.memory());
    EXPECT_LE(max_difference(decoding.append(SeqId{1}, join(b, {6})), fresh(join(b, {6}))),
              kTolerance);
}

TEST(ScenarioR8, FailedDecodeLeavesExactlyWhatWasCommitted) {
    const std::vector<Token> before = text(21, 1), other = text(13, 2), added = text(32, 3);
    for (size_t fails_at = 0; fails_at < 4; fails_at++) {
        SCOPED_TRACE("before ubatch " + std::to_string(fails_at));
        MemoryConfig config;
        config.layers = tiny_llama().info().layers;
        config.n_cells = 256;
        config.page_size = 8;
        config.type_k = config.type_v = KvType::kF32;
        auto memory = std::move(Memory::create(config)).value();
        StepperOptions stepper_options;
        stepper_options.max_ubatch = 64;
        auto stepper = std::move(Stepper::create(tiny_llama(), *memory, stepper_options)).value();

        // Computes up to `until` ubatches of 8 tokens; returns the last row.
        const auto decode = [&](SeqId seq, const std::vector<Token>& tokens, size_t until) {
            Batch batch;
            for (size_t i = 0; i < tokens.size(); i++)
                batch.add(tokens[i], seq, kNextPos, i + 1 == tokens.size());
            SplitOptions split;
            split.max_ubatch = 8;
            auto plan = memory->prepare(batch, split);
            EXPECT_TRUE(plan) << plan.error().message;
            Row row;
            for (size_t i = 0; i < plan->size() && i < until; i++) {
                EXPECT_TRUE(memory->apply_moves(*plan, i));
                auto logits = stepper->compute(batch, *plan, i);
                EXPECT_TRUE(logits) << logits.error().message;
                if (!logits->items.empty())
                    row.assign(logits->row(0).begin(), logits->row(0).end());
                EXPECT_TRUE(memory->commit(*plan, i));
            }
            return row;
        };
        decode(SeqId{0}, before, SIZE_MAX);
        decode(SeqId{1}, other, SIZE_MAX);
        const uint64_t hash = seen_hash(*memory, SeqId{0}),
                       other_hash = seen_hash(*memory, SeqId{1});

        decode(SeqId{0}, added, fails_at);
        EXPECT_EQ(audit(memory->cells()), std::nullopt);
        EXPECT_EQ(memory->seq_pos_max(SeqId{0}), static_cast<Pos>(20 + 8 * fails_at));
        EXPECT_EQ(seen_hash(*memory, SeqId{1}), other_hash);
        if (fails_at == 0) {
            EXPECT_EQ(seen_hash(*memory, SeqId{0}), hash);
        }

        poison(*memory);
        const std::vector<Token> rest(added.begin() + static_cast<ptrdiff_t>(8 * fails_at),
                                      added.end());
        EXPECT_LE(max_difference(decode(SeqId{0}, rest, SIZE_MAX), fresh(join(before, added))),
                  kTolerance);
    }
}

TEST(ScenarioR9, FragmentedPoolTakesASequenceOfHalfOfIt) {
    Decoding decoding(tiny_llama(), options(64 * 8, 8));
    for (int s = 0; s < 64; s++)
        decoding.append(SeqId{s}, text(8, static_cast<uint32_t>(s)));
    for (int s = 0; s < 64; s += 2)
        ASSERT_TRUE(decoding.memory().seq_rm(SeqId{s}, -1, -1));
    poison(decoding.memory());
    const std::vector<Token> longer = text(32 * 8, 99);
    EXPECT_LE(max_difference(decoding.append(SeqId{100}, longer), fresh(longer)), kTolerance);
    EXPECT_EQ(decoding.memory().cells().pool(0).n_free(), 0u);
}

TEST(ScenarioR9, CompactionChangesNothingThatASequenceSees) {
    for (const KvType type :
         {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kQ8_0, KvType::kQ4_0}) {
        SCOPED_TRACE(name(type));
        DecoderOptions small = options(1024, 16);
        // tiny-llama's heads of 16 are narrower than a quantized block; those types are refused.
        small.type_k = small.type_v = type;
        auto decoder = Decoder::create(tiny_llama(), small);
        if (!decoder) {
            EXPECT_EQ(decoder.error().code, Code::kUnsupported);
            continue;
        }
        Decoding decoding(tiny_llama(), small);
        for (int s = 0; s < 8; s++) {
            decoding.append(SeqId{s}, text(64, static_cast<uint32_t>(s)));
            ASSERT_TRUE(decoding.memory().seq_cp(SeqId{s}, SeqId{s + 8}, -1, -1));
            for (Pos p = 0; p < 64; p += 16)
                for (const int seq : {s, s + 8})
                    ASSERT_TRUE(decoding.memory().seq_rm(SeqId{seq}, p + 3, p + 14));
        }
        std::vector<uint64_t> hashes;
        for (int s = 0; s < 16; s++)
            hashes.push_back(seen_hash(decoding.memory(), SeqId{s}));
        const uint32_t free = decoding.memory().cells().pool(0).n_free();
        const auto moved = decoding.memory().defrag(1000);
        ASSERT_TRUE(moved) << moved.error().message;
        EXPECT_GT(*moved, 0u);
        EXPECT_GT(decoding.memory().cells().pool(0).n_free(), free + 8);
        poison(decoding.memory());
        for (int s = 0; s < 16; s++)
            EXPECT_EQ(seen_hash(decoding.memory(), SeqId{s}), hashes[static_cast<size_t>(s)]);
        EXPECT_EQ(audit(decoding.memory().cells()), std::nullopt);
    }
}

TEST(ScenarioR20, PartOfASequenceIsCopiedToAnyOther) {
    for (const uint32_t page_size : {1u, 2u, 4u, 32u}) {
        SCOPED_TRACE("pages of " + std::to_string(page_size));
        Decoding decoding(tiny_llama(), options(256, page_size));
        Memory& memory = decoding.memory();
        const std::vector<Token> t = text(20, 1), y = text(5, 2);
        decoding.append(SeqId{0}, t);
        const uint32_t free = memory.cells().pool(0).n_free();

        ASSERT_TRUE(memory.seq_cp(SeqId{0}, SeqId{1}, 3, 11));
        EXPECT_EQ(memory.seq_pos_min(SeqId{1}), 3);
        EXPECT_EQ(memory.seq_pos_max(SeqId{1}), 10);
        EXPECT_EQ(memory.cells().n_cells(SeqId{1}, 0), 8u);
        ASSERT_TRUE(memory.seq_cp(SeqId{0}, SeqId{1}, 0, 11));
        EXPECT_EQ(memory.cells().pool(0).n_free(), free);  // references only

        poison(memory);
        EXPECT_LE(max_difference(decoding.append(SeqId{1}, y), fresh(join(first(t, 11), y))),
                  kTolerance);
        const uint64_t hash = seen_hash(memory, SeqId{1});
        ASSERT_TRUE(memory.seq_rm(SeqId{0}, -1, -1));
        poison(memory);
        EXPECT_EQ(seen_hash(memory, SeqId{1}), hash);
        EXPECT_EQ(audit(memory.cells()), std::nullopt);
        EXPECT_LE(
            max_difference(decoding.append(SeqId{1}, {9}), fresh(join(join(first(t, 11), y), {9}))),
            kTolerance);
    }
}

}  // namespace
}  // namespace cellar
