#include "cells/batch.h"

#include <gtest/gtest.h>

#include <array>

#include "cells/cells.h"

namespace cellar {
namespace {

constexpr ContentKey kCat{1, 2}, kDog{1, 3};

TEST(BatchTest, EmbeddingsMatchUnderEqualKeysOnly) {
    Batch batch;
    batch.add(7, SeqId{0});
    batch.add(kNoToken, SeqId{0});
    batch.name_content(kCat);
    batch.add(kNoToken, SeqId{0});
    batch.add(kNoToken, SeqId{0});
    batch.name_content(kDog);
    batch.add(kNoToken, SeqId{1});
    batch.name_content(kCat);
    batch.add(7, SeqId{1});
    batch.add(8, SeqId{1});

    const auto match = [&](size_t a, size_t b) {
        EXPECT_EQ(batch.content(a).matches(batch.content(b)),
                  batch.content(b).matches(batch.content(a)));
        return batch.content(a).matches(batch.content(b));
    };
    EXPECT_TRUE(match(1, 4));
    EXPECT_TRUE(match(0, 5));
    EXPECT_FALSE(match(1, 3));
    EXPECT_FALSE(match(5, 6));
    for (size_t other = 0; other < batch.size(); other++)
        EXPECT_FALSE(match(2, other)) << "an embedding without a key matched item " << other;
    EXPECT_FALSE(match(0, 1));
}

TEST(BatchTest, ClearingForgetsKeys) {
    Batch batch;
    batch.add(kNoToken, SeqId{0});
    batch.name_content(kCat);
    batch.clear();
    batch.add(kNoToken, SeqId{0});
    EXPECT_FALSE(batch.content(0).key);
}

TEST(BatchTest, EmbeddingsTakeCellsAsTokensDo) {
    auto cells = Cells::create({{64}, 4, 4});
    ASSERT_TRUE(cells);
    Batch batch(4);
    batch.add(5, SeqId{0});
    for (Pos column = 0; column < 3; column++) {  // a row of an image: one time, three columns
        const SeqId seq{0};
        batch.add_at(kNoToken, std::span<const SeqId>(&seq, 1),
                     std::array<Pos, 4>{1, 1, column, 0});
        batch.name_content({9, static_cast<uint64_t>(column)});
    }
    auto plan = cells->prepare(batch, {});
    ASSERT_TRUE(plan) << plan.error().message;
    for (const uint32_t item : plan->ubatch(0).items)
        EXPECT_EQ(batch.is_embedding(item), item > 0);
    ASSERT_TRUE(cells->commit(*plan, 0));
    EXPECT_EQ(cells->n_cells(SeqId{0}, 0), 4u);
    EXPECT_EQ(cells->seq_pos_max(SeqId{0}), 1);
}

}  // namespace
}  // namespace cellar
