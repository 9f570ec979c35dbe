// R12 and R14: what is saved comes back, whatever the memory that it comes back to looks like.

#include <gtest/gtest.h>

#include <tuple>

#include "state/inspection.h"
#include "state/seen_hash.h"
#include "state/state_rig.h"

namespace cellar::testing {
namespace {

constexpr KvType kTypes[] = {KvType::kF32,  KvType::kF16,  KvType::kBf16,
                             KvType::kQ8_0, KvType::kQ4_0, KvType::kQ4_1,
                             KvType::kQ5_0, KvType::kQ5_1, KvType::kIq4Nl};

// Whether both can be rewound to the same positions, which is how windows, states and checkpoints
// show that they have come along.
void expect_same_rewinds(StateRig& a, int seq_a, StateRig& b, int seq_b) {
    const Pos end = a->seq_pos_max(SeqId{seq_a}) + 1;
    ASSERT_EQ(b->seq_pos_max(SeqId{seq_b}) + 1, end);
    for (Pos p = 0; p <= end; p++) {
        const bool one = a->can_rm(SeqId{seq_a}, p, -1).has_value();
        const bool other = b->can_rm(SeqId{seq_b}, p, -1).has_value();
        EXPECT_EQ(one, other) << "at " << p;
    }
}

// What a next token at `next` sees in windows.
std::vector<Pos> seen_in_windows(const StateRig& rig, Pos next) {
    std::vector<Pos> seen;
    for (uint32_t g = 0; g < rig->cells().n_groups(); g++)
        for (const Span& span : rig->cells().spans(SeqId{0}, g))
            for (uint32_t i = 0; i < span.count; i++)
                if (const Pos p = rig->cells().pos(g, span, i);
                    rig->cells().kind(g).slides() && rig->cells().kind(g).sees(next).contains(p))
                    seen.push_back(p);
    return seen;
}

// By kind of group and type of keys and values.
class R12 : public ::testing::TestWithParam<std::tuple<size_t, KvType>> {
protected:
    RigOptions options(uint32_t page_size = 16) const {
        RigOptions options;
        options.kind = state_kinds()[std::get<0>(GetParam())];
        options.type_k = options.type_v = std::get<1>(GetParam());
        options.page_size = page_size;
        return options;
    }

    void expect_round_trip(StateRig& from, int seq, uint32_t to_page_size) {
        const std::vector<std::byte> bytes = save(from, {seq});
        for (const int target : {seq, 9, 4}) {
            StateRig to(options(to_page_size));
            to.append(3, 5);
            to.append(4, 19);  // occupied
            const uint64_t bystander = to.hash(3);
            const auto loaded = load(to, bytes, into(target));
            ASSERT_TRUE(loaded) << loaded.error().message;
            EXPECT_EQ(loaded->at(0).tokens, (std::vector<Token>{5, 6, 7}));
            EXPECT_EQ(to.hash(target), from.hash(seq));
            EXPECT_EQ(hash_seen(*to, SeqId{target}), hash_seen(*from, SeqId{seq}));
            EXPECT_EQ(to.hash(3), bystander);
            expect_same_rewinds(from, seq, to, target);
            to.expect_sound();
            // A copy of it says the same in the same bytes.
            EXPECT_EQ(save(to, {target}).size(), bytes.size());
            to.append(target, 30);
            to.expect_sound();
        }
    }
};

TEST_P(R12, LengthsAroundAPage) {
    for (const uint32_t n : {0u, 1u, 15u, 16u, 17u, 48u}) {
        SCOPED_TRACE(n);
        StateRig rig(options());
        rig.append(7, 3);  // so that pages do not begin at row 0
        rig.append(1, n);
        expect_round_trip(rig, 1, 16);
        expect_round_trip(rig, 1, 1);
        expect_round_trip(rig, 1, 64);
    }
}

TEST_P(R12, ScatteredPagesBecomeOthers) {
    StateRig rig(options());
    for (uint32_t i = 0; i < 5; i++) {
        rig.append(1, 11);
        rig.append(2, 6);
    }
    ASSERT_TRUE(rig->seq_rm(SeqId{2}, -1, -1));
    expect_round_trip(rig, 1, 16);
    // Back into the holes, over what it holds itself.
    const std::vector<std::byte> bytes = save(rig, {1});
    const uint64_t before = rig.hash(1);
    ASSERT_TRUE(load(rig, bytes));
    EXPECT_EQ(rig.hash(1), before);
    rig.expect_sound();
}

TEST_P(R12, CheckpointsAndForks) {
    StateRig rig(options());
    rig.append(1, 12, true);
    rig.append(1, 14, true);
    ASSERT_TRUE(rig->seq_cp(SeqId{1}, SeqId{2}, -1, -1));
    rig.append(1, 9);
    rig.append(2, 25);
    expect_round_trip(rig, 1, 16);
    expect_round_trip(rig, 2, 8);
}

INSTANTIATE_TEST_SUITE_P(KindsAndTypes, R12,
                         ::testing::Combine(::testing::Range<size_t>(0, state_kinds().size()),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& test) {
                             return std::string(state_kinds()[std::get<0>(test.param)].name) + "_" +
                                    std::string(name(std::get<1>(test.param)));
                         });

// Edits that leave holes, and positions moved or laid over each other.
TEST(R12Edits, HolesShiftsAndOverlapsComeBack) {
    for (const uint32_t page_size : {1u, 16u, 32u}) {
        StateRig rig;
        rig.append(1, 50);
        ASSERT_TRUE(rig->seq_rm(SeqId{1}, 5, 19));
        ASSERT_TRUE(rig->seq_add(SeqId{1}, 19, -1, -14));
        ASSERT_TRUE(rig->seq_rm(SeqId{1}, 9, 12));
        ASSERT_TRUE(rig->seq_add(SeqId{1}, 30, -1, -20));  // over others
        RigOptions options;
        options.page_size = page_size;
        StateRig to(options);
        const auto loaded = load(to, save(rig));
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(hash_seen(*to, SeqId{1}), hash_seen(*rig, SeqId{1}));
        to.expect_sound();
        ASSERT_TRUE(rig->seq_rm(SeqId{1}, 12, 20));
        ASSERT_TRUE(to->seq_rm(SeqId{1}, 12, 20));
        EXPECT_EQ(hash_seen(*to, SeqId{1}), hash_seen(*rig, SeqId{1}));
    }
}

TEST(R12Edits, PendingMovesComeFirst) {
    StateRig rig;
    rig.append(1, 20);
    ASSERT_TRUE(rig->seq_div(SeqId{1}, 0, -1, 2));
    const auto refused = Saving::begin(*rig, {}, {}, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kBusy);
    for (const CellMove& move : rig->pending())
        rig->copy_cells(move);
    rig->finish_moves();
    StateRig to;
    ASSERT_TRUE(load(to, save(rig)));
    EXPECT_EQ(to.hash(1), rig.hash(1));
}

TEST(R12Edits, VectorPositionsComeBack) {
    RigOptions options;
    options.n_pos = 4;
    StateRig rig(options);
    rig.append(1, 29);
    ASSERT_TRUE(rig->seq_add(SeqId{1}, 0, -1, 3));
    options.page_size = 8;
    StateRig to(options);
    ASSERT_TRUE(load(to, save(rig)));
    EXPECT_EQ(hash_seen(*to, SeqId{1}), hash_seen(*rig, SeqId{1}));
    to.expect_sound();
}

TEST(R12Whole, SharedPagesAreWrittenOnceAndSharedAgain) {
    for (const StateKind& kind : state_kinds()) {
        SCOPED_TRACE(kind.name);
        RigOptions options;
        options.kind = kind;
        StateRig rig(options);
        rig.append(0, 48);
        const size_t one = save(rig, {0}).size();
        for (int seq = 1; seq < 5; seq++) {
            ASSERT_TRUE(rig->seq_cp(SeqId{0}, SeqId{seq}, -1, -1));
            rig.append(seq, 3);
        }
        const std::vector<std::byte> all = save(rig);
        StateRig to(options);
        const auto loaded = load(to, all);
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(loaded->size(), 5);
        for (int seq = 0; seq < 5; seq++) {
            EXPECT_EQ(to.hash(seq), rig.hash(seq));
            expect_same_rewinds(rig, seq, to, seq);
        }
        to.expect_sound();
        if (kind.kinds.size() > 1 || kind.kinds[0] != GroupKind::full()) continue;
        EXPECT_LT(all.size(), one * 3 / 2);
        EXPECT_LE(to->cells().pool(0).n_live(), 3 + 4);
        EXPECT_EQ(to->cells().spans(SeqId{1}, 0)[0], to->cells().spans(SeqId{4}, 0)[0]);
    }
}

// Pools that a backend has allocated, pools on host memory, pools of both, and pools that grow as
// they are loaded.
TEST(R12Whole, BuffersAndSizesOfAnyOtherKind) {
    for (const StateKind& kind : state_kinds()) {
        SCOPED_TRACE(kind.name);
        RigOptions host;
        host.kind = kind;
        host.page_size = 8;
        RigOptions allocated = host;
        allocated.page_size = 32;
        allocated.n_cells = 512;
        allocated.buffers = {ggml_backend_cpu_buffer_type()};
        RigOptions split = host;
        split.buffers = {nullptr, ggml_backend_cpu_buffer_type()};
        RigOptions growing = host;
        growing.page_size = 4;
        growing.grow_step = 8;
        StateRig rig(host);
        rig.append(1, 31, true);
        ASSERT_TRUE(rig->seq_cp(SeqId{1}, SeqId{2}, -1, -1));
        rig.append(2, 40);
        std::vector<std::byte> bytes = save(rig);
        for (const RigOptions& options : {allocated, split, growing, split, allocated, host}) {
            StateRig to(options);
            const auto loaded = load(to, bytes);
            ASSERT_TRUE(loaded) << loaded.error().message;
            for (const int seq : {1, 2})
                EXPECT_EQ(hash_seen(*to, SeqId{seq}), hash_seen(*rig, SeqId{seq}));
            to.expect_sound();
            bytes = save(to);  // and on from there
        }
    }
}

TEST(R12Whole, SomeSequencesOfMany) {
    StateRig rig;
    rig.append(0, 40);
    ASSERT_TRUE(rig->seq_cp(SeqId{0}, SeqId{1}, -1, 20));
    rig.append(1, 13);
    rig.append(2, 21);
    const std::vector<std::byte> all = save(rig, {0, 1, 2});
    StateRig to;
    LoadStateOptions options;
    options.seqs = {{SeqId{2}, SeqId{6}}, {SeqId{1}, SeqId{0}}};
    const auto loaded = load(to, all, options);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(to.hash(6), rig.hash(2));
    EXPECT_EQ(to.hash(0), rig.hash(1));
    EXPECT_EQ(to->cells().sequences().size(), 2);
    to.expect_sound();

    options.seqs = {{SeqId{5}, SeqId{5}}};
    EXPECT_EQ(load(to, all, options).error().code, Code::kBadRange);
    EXPECT_EQ(load(to, all, into(1)).error().code, Code::kBadRange);
}

TEST(R12Whole, WindowsAndStatesAloneRewindTheRest) {
    RigOptions options;
    options.kind = state_kinds()[3];
    StateRig rig(options);
    rig.append(0, 30);
    SaveOptions save_options;
    save_options.groups = {1, 2};
    const std::vector<std::byte> small = save(rig, {0}, save_options);
    EXPECT_LT(small.size(), save(rig, {0}).size() / 2);
    const uint64_t before = rig.hash(0);
    rig.append(0, 25);
    EXPECT_FALSE(rig->can_rm(SeqId{0}, 30, -1));
    const auto loaded = load(rig, small);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(rig.hash(0), before);
    rig.expect_sound();
    // Of a sequence that does not reach so far, nothing can be made.
    rig.append(1, 10);
    const uint64_t shorter = rig.hash(1);
    EXPECT_EQ(load(rig, small, into(1)).error().code, Code::kBadRange);
    EXPECT_EQ(rig.hash(1), shorter);
}

TEST(R12Whole, ASmallStateAfterABigOne) {
    StateRig big, small, to;
    big.append(0, 150);
    small.append(0, 3);
    ASSERT_TRUE(load(to, save(big)));
    ASSERT_TRUE(load(to, save(small)));
    EXPECT_EQ(to.hash(0), small.hash(0));
    EXPECT_EQ(to->cells().pool(0).n_live(), 1);
}

// Each of those that stay must have all of its window.
TEST(R12Whole, OfTooManyCheckpointsTheLastAreWhole) {
    for (const size_t kind : {1u, 2u, 3u}) {
        RigOptions options;
        options.kind = state_kinds()[kind];
        options.page_size = 1;
        StateRig rig(options);
        for (int i = 0; i < 4; i++)
            rig.append(0, 20, true);
        rig.append(0, 20);
        options.max_checkpoints = 2;
        StateRig to(options);
        ASSERT_TRUE(load(to, save(rig)));
        rig.append(0, 1);
        to.append(0, 1);
        EXPECT_FALSE(to->can_rm(SeqId{0}, 40, -1)) << options.kind.name;
        for (const Pos p : {80, 60}) {
            ASSERT_TRUE(rig->seq_rm(SeqId{0}, p, -1));
            ASSERT_TRUE(to->seq_rm(SeqId{0}, p, -1)) << options.kind.name;
            EXPECT_EQ(seen_in_windows(to, p), seen_in_windows(rig, p)) << options.kind.name;
        }
        to.expect_sound();
    }
}

TEST(R12Whole, CompressedIsSmallerAndTheSame) {
    StateRig rig;
    rig.append(0, 100);
    // Rows that compress: zeros.
    for (uint32_t layer = 0; layer < 2; layer++) {
        const std::vector<uint8_t> zeros(rig->k(layer)->nb[1] * 90, 0);
        ggml_backend_tensor_set(rig->k(layer), zeros.data(), 0, zeros.size());
    }
    SaveOptions options;
    options.compress = true;
    const std::vector<std::byte> packed = save(rig, {0}, options), plain = save(rig, {0});
    EXPECT_LT(packed.size(), plain.size() * 3 / 4);
    StateRig to;
    const auto loaded = load(to, packed);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(to.hash(0), rig.hash(0));
}

TEST(R12Whole, AnotherTypeOnRequestOnly) {
    StateRig rig;
    rig.append(0, 40);
    // Numbers, not any bytes: conversion goes through floats.
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (ggml_tensor* pool : {rig->k(layer), rig->v(layer)}) {
            std::vector<ggml_fp16_t> row(static_cast<size_t>(pool->ne[0]));
            for (size_t i = 0; i < row.size(); i++)
                row[i] = ggml_fp32_to_fp16(static_cast<float>(i % 13) * 0.25f - 1.0f);
            for (int64_t r = 0; r < 48; r++)
                ggml_backend_tensor_set(pool, row.data(), static_cast<size_t>(r) * pool->nb[1],
                                        pool->nb[1]);
        }
    }
    RigOptions options;
    options.type_k = KvType::kF32;
    options.type_v = KvType::kQ8_0;
    StateRig to(options);
    const std::vector<std::byte> bytes = save(rig);
    const auto refused = load(to, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    LoadStateOptions convert;
    convert.convert = true;
    const auto loaded = load(to, bytes, convert);
    ASSERT_TRUE(loaded) << loaded.error().message;
    const uint32_t row = value(to->cells().spans(SeqId{0}, 0)[1].page) * 16;
    float k[64] = {};
    ggml_backend_tensor_get(to->k(0), k, row * to->k(0)->nb[1], sizeof k);
    for (size_t i = 0; i < 64; i++)
        EXPECT_EQ(k[i], static_cast<float>(i % 13) * 0.25f - 1.0f);
    std::vector<uint8_t> v(to->v(0)->nb[1]);
    ggml_backend_tensor_get(to->v(0), v.data(), row * v.size(), v.size());
    std::vector<float> values(static_cast<size_t>(to->v(0)->ne[0]));
    ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(v.data(), values.data(), to->v(0)->ne[0]);
    for (size_t i = 0; i < values.size(); i++)
        EXPECT_NEAR(values[i], static_cast<float>(i % 13) * 0.25f - 1.0f, 0.01);
}

TEST(R12Whole, ProgressReachesTheEndAndCanStop) {
    StateRig rig;
    rig.append(0, 100);
    double last = 0;
    LoadStateOptions options;
    options.progress = [&](double part) {
        EXPECT_GE(part, last);
        last = part;
        return true;
    };
    const std::vector<std::byte> bytes = save(rig);
    StateRig to;
    ASSERT_TRUE(load(to, bytes, options));
    EXPECT_DOUBLE_EQ(last, 1.0);
    to.append(1, 3);
    const uint64_t before = to.hash(1);
    options.progress = [](double part) { return part < 0.6; };
    options.into = SeqId{1};
    EXPECT_EQ(load(to, bytes, options).error().code, Code::kCancelled);
    EXPECT_EQ(to.hash(1), before);
    to.expect_sound();
    SaveOptions stop;
    stop.progress = [](double) { return false; };
    auto saving = Saving::begin(*rig, {}, {}, stop);
    MemorySink sink;
    EXPECT_EQ(saving->write(sink).error().code, Code::kCancelled);
}

TEST(R12Whole, InspectionSaysWhatThereIs) {
    StateRig rig;
    rig.append(3, 33);
    const std::vector<std::byte> bytes = save(rig, {3});
    MemorySource source(bytes);
    const auto found = inspect_state(source);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->verified);
    EXPECT_EQ(found->bytes, bytes.size());
    EXPECT_EQ(found->head.identity, test_identity());
    EXPECT_EQ(found->head.layers.size(), 2);
    EXPECT_EQ(found->head.n_cells(0), 33);
    EXPECT_EQ(value(found->head.seqs[0].seq), 3);
    EXPECT_EQ(found->bytes_cells, 33 * 2 * (64 + 128 + 64 + 32));
}

// Rows that layers share stand once, and layers that keep none have no chunk.
TEST(R12Whole, SharedRowsAreSavedOnce) {
    const LayerKv kept{0, 2, 32, 64}, shared{0, 2, 32, 64, 0};
    RigOptions options;
    options.kind.layers = {kept, shared, LayerKv::none(), shared};
    StateRig rig(options);
    rig.append(0, 33);
    const std::vector<std::byte> bytes = save(rig);
    MemorySource source(bytes);
    const auto found = inspect_state(source);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->verified);
    EXPECT_EQ(found->head.layers.size(), 4);
    EXPECT_EQ(found->bytes_cells, 33 * 2 * (64 + 128));
    std::vector<double> progress;
    LoadStateOptions watched;
    watched.progress = [&](double done) {
        progress.push_back(done);
        return true;
    };
    StateRig to(options);
    ASSERT_TRUE(load(to, bytes, watched));
    EXPECT_EQ(to.hash(0), rig.hash(0));
    EXPECT_EQ(hash_seen(*to, SeqId{0}), hash_seen(*rig, SeqId{0}));
    ASSERT_FALSE(progress.empty());
    EXPECT_DOUBLE_EQ(progress.back(), 1.0);
}

TEST(R14, OthersStayAsTheyAre) {
    for (const StateKind& kind : state_kinds()) {
        SCOPED_TRACE(kind.name);
        RigOptions options;
        options.kind = kind;
        StateRig rig(options);
        rig.append(0, 20);
        ASSERT_TRUE(rig->seq_cp(SeqId{0}, SeqId{1}, -1, -1));
        ASSERT_TRUE(rig->seq_cp(SeqId{0}, SeqId{2}, -1, -1));
        rig.append(1, 5);
        rig.append(2, 7);
        rig.append(3, 11);
        std::vector<std::byte> bytes = save(rig, {3});
        const std::vector<uint64_t> before = {rig.hash(0), rig.hash(1), rig.hash(3)};
        ASSERT_TRUE(load(rig, bytes, into(2)));
        EXPECT_EQ(rig.hash(2), rig.hash(3));
        EXPECT_EQ((std::vector<uint64_t>{rig.hash(0), rig.hash(1), rig.hash(3)}), before);
        bytes[bytes.size() - 200] ^= std::byte{1};
        const uint64_t second = rig.hash(2);
        EXPECT_FALSE(load(rig, bytes, into(2)));
        EXPECT_EQ(rig.hash(2), second);
        EXPECT_EQ((std::vector<uint64_t>{rig.hash(0), rig.hash(1), rig.hash(3)}), before);
        rig.expect_sound();
    }
}

TEST(R14, WithoutRoomNothingChanges) {
    StateRig rig;
    rig.append(0, 130);
    const std::vector<std::byte> bytes = save(rig);
    const uint64_t before = rig.hash(0);
    const auto refused = load(rig, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoRoom);
    EXPECT_EQ(refused.error().room->needed, 144);
    EXPECT_EQ(refused.error().room->free, 256 - 144);
    EXPECT_EQ(rig.hash(0), before);
    ASSERT_TRUE(rig->seq_rm(SeqId{0}, -1, -1));
    ASSERT_TRUE(load(rig, bytes));
    EXPECT_EQ(rig.hash(0), before);
}

}  // namespace
}  // namespace cellar::testing
