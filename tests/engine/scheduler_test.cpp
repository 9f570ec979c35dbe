#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace cellar {
namespace {

// A scheduler with verbs that a story can be told in. Pages have 10 cells.
class SchedulerTest : public testing::Test {
protected:
    // Queues a task with a prompt of n tokens that needs `cells`.
    RequestId add(size_t n_prompt, uint64_t cells) {
        const RequestId id{next_++};
        Request request;
        request.prompt.assign(n_prompt, 7);
        scheduler_.add(std::make_unique<Task>(id, std::move(request), *Sampler::create({})), cells);
        return id;
    }

    // Admits all that fit, as the engine does.
    void admit() {
        while (scheduler_.admit(0)) {
        }
    }

    // (request, count) of each pick, as the engine would carry it out: prompts that are computed
    // get a token to go on from.
    std::vector<std::pair<uint64_t, size_t>> step(size_t budget) {
        std::vector<std::pair<uint64_t, size_t>> picks;
        for (const auto& [task, count] : scheduler_.pick(budget)) {
            picks.emplace_back(static_cast<uint64_t>(task->id), count);
            task->n_computed += count;
            if (task->left() == 0) {
                task->tokens.push_back(7);
                task->usage.generated++;
            }
        }
        return picks;
    }

    using Picks = std::vector<std::pair<uint64_t, size_t>>;

    Scheduler scheduler_{100, 10};
    uint64_t next_ = 0;
};

TEST_F(SchedulerTest, LongPromptsAreCutAndDecodingGoesOn) {
    add(3, 20);
    admit();
    EXPECT_EQ(step(8), (Picks{{0, 3}}));
    add(20, 30);
    admit();
    EXPECT_EQ(step(8), (Picks{{0, 1}, {1, 7}}));
    EXPECT_EQ(step(8), (Picks{{0, 1}, {1, 7}}));
    EXPECT_EQ(step(8), (Picks{{0, 1}, {1, 6}}));
    EXPECT_EQ(step(8), (Picks{{0, 1}, {1, 1}}));
}

TEST_F(SchedulerTest, PromptsComeFirstComeFirstServed) {
    add(10, 10);
    add(5, 10);
    admit();
    EXPECT_EQ(step(8), (Picks{{0, 8}}));
    EXPECT_EQ(step(8), (Picks{{0, 2}, {1, 5}}));
}

TEST_F(SchedulerTest, MoreDecodersThanBudgetTakeTurns) {
    for (int i = 0; i < 5; i++) {
        add(1, 10);
    }
    admit();
    EXPECT_EQ(step(5).size(), 5u);
    EXPECT_EQ(step(2), (Picks{{0, 1}, {1, 1}}));
    EXPECT_EQ(step(2), (Picks{{2, 1}, {3, 1}}));
    EXPECT_EQ(step(2), (Picks{{4, 1}, {0, 1}}));
}

TEST_F(SchedulerTest, TasksWaitForTheirCellsInOrder) {
    const RequestId first = add(1, 55);  // 60 in pages
    add(1, 50);
    add(1, 10);  // would fit at once, but is not let past
    admit();
    EXPECT_EQ(scheduler_.free_cells(), 40u);
    EXPECT_EQ(step(100), (Picks{{0, 1}}));
    scheduler_.remove(first, 0);
    admit();
    EXPECT_EQ(scheduler_.free_cells(), 40u);
    EXPECT_EQ(step(100), (Picks{{1, 1}, {2, 1}}));
}

TEST_F(SchedulerTest, CellsThatASessionHoldsCountOnceAndReturn) {
    const RequestId first = add(1, 80);
    admit();
    scheduler_.remove(first, 35);  // its session keeps 35 cells: 4 pages
    EXPECT_EQ(scheduler_.free_cells(), 60u);
    add(1, 100);
    EXPECT_EQ(scheduler_.admit(0), nullptr);
    EXPECT_NE(scheduler_.admit(35), nullptr);  // the same session goes on
    EXPECT_EQ(scheduler_.free_cells(), 0u);
    scheduler_.remove(RequestId{1}, 95);
    scheduler_.give_back(95);
    EXPECT_EQ(scheduler_.free_cells(), 100u);
}

TEST_F(SchedulerTest, TasksWaitForATextInOrder) {
    scheduler_ = Scheduler(100, 10, 2);
    const RequestId first = add(1, 10);
    for (int i = 0; i < 3; i++) {
        add(1, 10);
    }
    admit();
    EXPECT_EQ(step(100), (Picks{{0, 1}, {1, 1}}));
    EXPECT_EQ(scheduler_.free_texts(), 0u);
    EXPECT_EQ(scheduler_.free_cells(), 80u);
    scheduler_.remove(first, 0);
    admit();
    EXPECT_EQ(step(100), (Picks{{1, 1}, {2, 1}}));
    EXPECT_EQ(scheduler_.free_texts(), 0u);
}

TEST_F(SchedulerTest, TextsThatSessionsHoldCountOnceAndReturn) {
    scheduler_ = Scheduler(100, 10, 1);
    const RequestId first = add(1, 20);
    admit();
    scheduler_.remove(first, 15);  // its session keeps the text
    const RequestId second = add(1, 20);
    EXPECT_EQ(scheduler_.admit(0), nullptr);
    EXPECT_EQ(scheduler_.free_cells(), 80u);
    EXPECT_NE(scheduler_.admit(15), nullptr);  // the same session goes on
    scheduler_.remove(second, 0);              // and is emptied
    EXPECT_EQ(scheduler_.free_texts(), 1u);
    scheduler_.set_aside(0);  // nothing is no text
    scheduler_.give_back(0);
    EXPECT_EQ(scheduler_.free_texts(), 1u);
    scheduler_.set_aside(15);
    EXPECT_FALSE(scheduler_.take_text());
    scheduler_.give_back(15);
    EXPECT_TRUE(scheduler_.take_text());
    add(1, 20);
    EXPECT_EQ(scheduler_.admit(0), nullptr);
    scheduler_.give_text();
    EXPECT_NE(scheduler_.admit(0), nullptr);
}

TEST_F(SchedulerTest, AWaitingTaskHasNoTextToReturn) {
    scheduler_ = Scheduler(100, 10, 1);
    add(1, 10);
    const RequestId second = add(1, 10);
    admit();
    scheduler_.remove(second, 0);
    EXPECT_EQ(scheduler_.free_texts(), 0u);
}

TEST_F(SchedulerTest, WaitingTasksAreRemovedWithoutATrace) {
    add(1, 100);
    const RequestId second = add(1, 100);
    admit();
    scheduler_.remove(second, 0);
    EXPECT_EQ(scheduler_.find(second), nullptr);
    EXPECT_EQ(scheduler_.free_cells(), 0u);
    scheduler_.remove(RequestId{0}, 0);
    EXPECT_EQ(scheduler_.free_cells(), 100u);
    EXPECT_TRUE(scheduler_.empty());
    EXPECT_TRUE(scheduler_.pick(10).empty());
}

}  // namespace
}  // namespace cellar
