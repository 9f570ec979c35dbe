// Random histories over every verb, judged by the naive model after each step.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

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
            if (finding) RC_FAIL("step " + std::to_string(i) + ": " + *finding);
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

}  // namespace
}  // namespace cellar::testing
