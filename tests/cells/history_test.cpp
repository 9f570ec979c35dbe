// Random histories over every verb, judged by the naive model after each step.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <sstream>

#include "testing/cells_history.h"

namespace rc {

template <>
struct Arbitrary<cellar::testing::Step> {
    static Gen<cellar::testing::Step> arbitrary() {
        using cellar::testing::Step;
        return gen::build<Step>(gen::set(&Step::verb), gen::set(&Step::a), gen::set(&Step::b),
                                gen::set(&Step::p0, gen::inRange<int16_t>(0, 2000)),
                                gen::set(&Step::p1, gen::inRange<int16_t>(0, 2000)),
                                gen::set(&Step::d, gen::inRange<int16_t>(-2000, 2000)));
    }
};

}  // namespace rc

namespace cellar::testing {
namespace {

struct Setting {
    const char* name;
    HistoryConfig config;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
    return out << setting.name;
}

// Memories that let windows and states go.
HistoryConfig letting_go(std::vector<uint32_t> cells, std::vector<GroupKind> kinds,
                         uint32_t n_rollback, uint32_t max_checkpoints,
                         uint32_t max_checkpoints_all = UINT32_MAX, uint32_t page_size = 8) {
    HistoryConfig config;
    config.group_cells = std::move(cells);
    config.page_size = page_size;
    config.kinds = std::move(kinds);
    config.n_rollback = n_rollback;
    config.max_checkpoints = max_checkpoints;
    config.max_checkpoints_all = max_checkpoints_all;
    return config;
}

const GroupKind kFull = GroupKind::full(), kStates = GroupKind::recurrent();

class HistoryTest : public ::testing::TestWithParam<Setting> {};

// Four histories of each setting, unless RC_PARAMS says otherwise. A soak of a million steps:
//   RC_PARAMS=max_success=15 build/asan/bin/cells_test --gtest_filter='*History*'
const bool kFewHistories = setenv("RC_PARAMS", "max_success=4", 0) == 0;

// Steps of each of the histories; CELLAR_HISTORY_STEPS makes them longer for a soak.
size_t n_steps() {
    const char* steps = std::getenv("CELLAR_HISTORY_STEPS");
    return steps != nullptr ? static_cast<size_t>(std::atol(steps)) : 10000;
}

TEST_P(HistoryTest, EverySequenceSeesWhatTheModelSays) {
    uint64_t taken = 0, refused = 0;
    const bool held = rc::check([&] {
        // At full size from the first history on: small numbers alone reach few states.
        const auto step = rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<Step>());
        const auto steps = *rc::gen::container<std::vector<Step>>(n_steps(), step);
        CellsHistory history(GetParam().config);
        for (size_t i = 0; i < steps.size(); i++) {
            const auto finding = history.apply(steps[i]);
            if (!finding) continue;
            std::ostringstream where;
            where << "step " << i << " " << steps[i] << ": " << *finding;
            RC_FAIL(where.str());
        }
        const auto finding = history.finish();
        if (finding) RC_FAIL(*finding);
        taken += steps.size();
        refused += history.refused();
    });
    EXPECT_TRUE(held);
    EXPECT_LT(refused, taken / 2) << "histories that are refused all the time test nothing";
}

INSTANTIATE_TEST_SUITE_P(Pages, HistoryTest,
                         ::testing::Values(Setting{"page1", {{300}, 1, 1, 6}},
                                           Setting{"page2", {{400}, 2, 1, 6}},
                                           Setting{"page32", {{1024}, 32, 1, 6}},
                                           Setting{"page256", {{4096}, 256, 1, 5}},
                                           Setting{"groups", {{1024, 640}, 8, 1, 6}},
                                           Setting{"growing", {{1024, 640}, 8, 1, 6, 24}},
                                           Setting{"vectors", {{1024}, 16, 4, 6}}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    LettingGo, HistoryTest,
    ::testing::Values(
        Setting{"window", letting_go({500}, {GroupKind::sliding(40)}, 0, 0)},
        Setting{"window_rollback", letting_go({700}, {GroupKind::sliding(21)}, 5, 3)},
        Setting{"window_page1", letting_go({500}, {GroupKind::sliding(16)}, 2, 2, 5, 1)},
        Setting{"chunks", letting_go({700}, {GroupKind::chunked(24)}, 3, 2)},
        Setting{"full_and_window", letting_go({1024, 600}, {kFull, GroupKind::sliding(33)}, 0, 4)},
        Setting{"states", letting_go({60}, {kStates}, 0, 3)},
        Setting{"states_rollback", letting_go({90}, {kStates}, 4, 3, 9)},
        Setting{"hybrid", letting_go({1024, 80}, {kFull, kStates}, 2, 4)},
        Setting{"all",
                letting_go({1024, 700, 90}, {kFull, GroupKind::sliding(30), kStates}, 1, 3, 12)}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellar::testing
