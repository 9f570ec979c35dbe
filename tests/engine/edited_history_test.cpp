#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "cells/audit.h"
#include "engine/decoding.h"
#include "engine/list_llama.h"
#include "engine/sharing_llama.h"
#include "testing/poison.h"

// The oracle of interior edits: after any history of appends, removals, shifts, divisions and
// copies of parts, a sequence's next logits are those of a model in double precision that attends
// to the keys and values as they were recorded, at the positions where their cells stand now. The
// poison rule: what no sequence sees is NaN all the while.

namespace cellar {
namespace {

using testing::Decoding;
using testing::ListLlama;
using testing::offloading;
using testing::open_model;
using testing::Owners;
using testing::poison;
using testing::Row;
using testing::SharingLlama;
using testing::Way;

struct EditCase {
    const char* name;
    uint32_t seed;
    uint32_t page_size;
    KvType type;
    Way way;
    // Of logits, which lie within about 1. Cells one position off make 6e-5 and more in f32.
    double tolerance;
    Owners owners = {};  // of layers that share keys and values or have none; empty: a plain llama
    const char* offload = "";  // layers that are on another device
};

constexpr const char* kTinyLlama = CELLAR_TEST_DATA "/models/tiny-llama.gguf";

std::ostream& operator<<(std::ostream& out, const EditCase& c) {
    return out << c.name;
}

class EditedHistoryTest : public ::testing::TestWithParam<EditCase> {
protected:
    static constexpr size_t kSequences = 4;
    static constexpr size_t kMostCells = 60;
    static constexpr Pos kMostPos = 400;

    static DecoderOptions options() {
        DecoderOptions options;
        options.n_cells = 1024;
        options.page_size = GetParam().page_size;
        options.max_ubatch = 16;
        options.type_k = options.type_v = GetParam().type;
        choose(GetParam().way, options);
        return options;
    }

    uint32_t draw(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
    Memory& memory() { return decoding_.memory(); }
    Token any_token() { return static_cast<Token>(draw(128)); }
    size_t any() { return draw(kSequences); }
    static SeqId id(size_t seq) { return SeqId{static_cast<int32_t>(seq)}; }

    // Part of what a sequence holds, mostly from its middle.
    Range any_part(size_t seq) {
        const auto end = static_cast<uint32_t>(ListLlama::next_pos(lists_[seq]));
        const auto begin = static_cast<Pos>(draw(end + 1));
        return {begin, begin + static_cast<Pos>(draw(end + 3))};
    }

    // Tokens of two sequences in one batch.
    void append(uint32_t most) {
        Batch batch;
        std::vector<ListLlama::Numbers> expected;
        const size_t first = any();
        for (const size_t seq : {first, (first + 1) % kSequences}) {
            for (uint32_t n = 1 + draw(most); n > 0 && room(seq); n--) {
                const Token token = any_token();
                batch.add(token, id(seq), kNextPos, true);
                expected.push_back(reference_.append(lists_[seq], token));
            }
        }
        judge(batch, expected);
    }

    // One token behind every sequence.
    void probe() {
        Batch batch;
        std::vector<ListLlama::Numbers> expected;
        for (size_t seq = 0; seq < kSequences; seq++) {
            if (lists_[seq].empty() || !room(seq)) continue;
            const Token token = any_token();
            batch.add(token, id(seq), kNextPos, true);
            expected.push_back(reference_.append(lists_[seq], token));
        }
        judge(batch, expected);
    }

    bool room(size_t seq) const {
        return lists_[seq].size() < kMostCells && ListLlama::next_pos(lists_[seq]) < kMostPos;
    }

    void judge(const Batch& batch, const std::vector<ListLlama::Numbers>& expected) {
        if (batch.empty()) return;
        poison(memory());
        const auto rows = decoding_.decode(batch);
        ASSERT_EQ(rows.size(), expected.size());
        for (const auto& [item, row] : rows)
            for (size_t i = 0; i < row.size(); i++)
                ASSERT_NEAR(static_cast<double>(row[i]), expected[item][i], GetParam().tolerance);
    }

    void remove() {
        const size_t seq = any();
        const Range part = any_part(seq);
        ASSERT_TRUE(memory().seq_rm(id(seq), part.begin, part.end));
        erase(lists_[seq], part);
    }

    void shift() {
        const size_t seq = any();
        const Range part = any_part(seq);
        const auto delta = static_cast<Pos>(draw(40)) - 20;
        ASSERT_TRUE(memory().seq_add(id(seq), part.begin, part.end, delta));
        for (ListLlama::Cell& cell : lists_[seq])
            if (part.contains(cell.pos)) cell.pos += delta;
        erase(lists_[seq], {-kMaxPos, 0});
    }

    void divide() {
        const size_t seq = any();
        const Range part = any_part(seq);
        const auto d = static_cast<int32_t>(2 + draw(3));
        ASSERT_TRUE(memory().seq_div(id(seq), part.begin, part.end, d));
        for (ListLlama::Cell& cell : lists_[seq])
            if (part.contains(cell.pos)) cell.pos /= d;
    }

    void copy() {
        const size_t from = any(), to = any();
        const Range part = any_part(from);
        ASSERT_TRUE(memory().seq_cp(id(from), id(to), part.begin, part.end));
        if (from == to) return;
        erase(lists_[to], part);
        for (const ListLlama::Cell& cell : lists_[from])
            if (part.contains(cell.pos)) lists_[to].push_back(cell);
    }

    void compact() {
        if (!memory().pending().empty()) return;
        ASSERT_TRUE(memory().defrag(draw(100)));
    }

    static void erase(ListLlama::List& list, Range part) {
        std::erase_if(list, [&](const ListLlama::Cell& cell) { return part.contains(cell.pos); });
    }

    std::mt19937 random_{GetParam().seed};
    const ListLlama reference_{kTinyLlama, GetParam().owners};
    const std::unique_ptr<Model> model_ =
        GetParam().owners.empty() ? open_model(kTinyLlama, offloading(GetParam().offload))
                                  : SharingLlama::load(kTinyLlama, GetParam().owners,
                                                       offloading(GetParam().offload).offloads);
    Decoding decoding_{*model_, options()};
    std::array<ListLlama::List, kSequences> lists_;
};

TEST_P(EditedHistoryTest, NextLogitsAreThoseOfTheRecordedCellsWhereTheyStand) {
    append(30);
    for (int step = 0; step < 120 && !HasFailure(); step++) {
        SCOPED_TRACE("step " + std::to_string(step));
        switch (draw(8)) {
            case 0:
            case 1:
                remove();
                break;
            case 2:
                shift();
                break;
            case 3:
                divide();
                break;
            case 4:
                copy();
                break;
            case 5:
                compact();
                break;
            default:
                append(12);
                break;
        }
        if (draw(3) > 0) continue;  // edits that build on each other
        probe();
        ASSERT_EQ(audit(memory().cells()), std::nullopt);
    }
}

// One layer in the middle shares, the next one has a feed-forward network only; or the last two
// share those of two others.
const Owners kSharedAndNone = {0, 0, std::nullopt, 3};
const Owners kLastTwoShare = {0, 1, 1, 0};

INSTANTIATE_TEST_SUITE_P(
    Histories, EditedHistoryTest,
    ::testing::Values(
        EditCase{"page8_flash", 1, 8, KvType::kF32, Way::kFlash, 1e-5},
        EditCase{"page8", 2, 8, KvType::kF32, Way::kSoftMax, 1e-5},
        EditCase{"page1_kernel", 3, 1, KvType::kF32, Way::kKernel, 1e-5},
        EditCase{"page32_kernel", 4, 32, KvType::kF32, Way::kKernel, 1e-5},
        EditCase{"f16_flash", 5, 8, KvType::kF16, Way::kFlash, 5e-4},
        EditCase{"f16", 6, 8, KvType::kF16, Way::kSoftMax, 5e-4},
        EditCase{"f16_kernel", 7, 8, KvType::kF16, Way::kKernel, 5e-4},
        EditCase{"shared_flash", 8, 8, KvType::kF32, Way::kFlash, 1e-5, kSharedAndNone},
        EditCase{"shared", 9, 8, KvType::kF32, Way::kSoftMax, 1e-5, kLastTwoShare},
        EditCase{"shared_kernel", 10, 8, KvType::kF32, Way::kKernel, 1e-5, kSharedAndNone},
        EditCase{"shared_by_the_last_kernel", 11, 8, KvType::kF32, Way::kKernel, 1e-5,
                 kLastTwoShare},
        EditCase{"shared_f16_kernel", 12, 8, KvType::kF16, Way::kKernel, 5e-4, kSharedAndNone},
        EditCase{"offloaded", 13, 8, KvType::kF32, Way::kAuto, 1e-5, {}, "all"},
        EditCase{"half_offloaded", 14, 8, KvType::kF32, Way::kAuto, 1e-5, {}, "2"},
        EditCase{"offloaded_f16", 15, 8, KvType::kF16, Way::kAuto, 5e-4, {}, "1-2"},
        // Owners are far and those that share near, and the other way round.
        EditCase{"shared_from_afar", 16, 8, KvType::kF32, Way::kAuto, 1e-5, kLastTwoShare, "0-1"},
        EditCase{"shared_with_afar", 17, 8, KvType::kF32, Way::kAuto, 1e-5, kLastTwoShare, "2"},
        EditCase{"shared_in_part", 18, 8, KvType::kF32, Way::kAuto, 1e-5, kLastTwoShare, "1-2"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace cellar
