#include "engine/common_runs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace cellar {
namespace {

using Tokens = std::vector<Token>;
using Runs = std::vector<CommonRun>;

// Tokens first, first + 1, ...
Tokens counted(Token first, size_t n) {
    Tokens tokens;
    for (size_t i = 0; i < n; i++) {
        tokens.push_back(first + static_cast<Token>(i));
    }
    return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// The longest run by looking at every pair of places.
size_t plainly_longest(const Tokens& a, const Tokens& b) {
    size_t longest = 0;
    for (size_t i = 0; i < a.size(); i++) {
        for (size_t k = 0; k < b.size(); k++) {
            size_t n = 0;
            while (i + n < a.size() && k + n < b.size() && a[i + n] == b[k + n]) {
                n++;
            }
            longest = std::max(longest, n);
        }
    }
    return longest;
}

TEST(CommonRuns, FollowDeletionsInsertionsAndExchanges) {
    const Tokens a = counted(0, 10), b = counted(100, 10), c = counted(200, 10), end{999};
    EXPECT_EQ(common_runs(a + b + c, a + c + end, 8, 4), (Runs{{0, 0, 10}, {20, 10, 10}}));
    EXPECT_EQ(common_runs(a + c, a + b + c + end, 8, 4), (Runs{{0, 0, 10}, {10, 20, 10}}));
    EXPECT_EQ(common_runs(a + b + c, b + c + end, 8, 4), (Runs{{10, 0, 20}}));
    const Tokens other = counted(300, 10);
    EXPECT_EQ(common_runs(a + b + c, a + other + c + end, 8, 4), (Runs{{0, 0, 10}, {20, 20, 10}}));
    // Two that crossed: the first of equal ones.
    EXPECT_EQ(common_runs(a + b + c, a + c + b + end, 8, 4), (Runs{{0, 0, 10}, {20, 10, 10}}));
}

TEST(CommonRuns, HaveAtLeastSoManyTokens) {
    const Tokens held = counted(0, 10) + counted(100, 20), text = Tokens{7} + counted(100, 8);
    EXPECT_EQ(common_runs(held, text + Tokens{999}, 8, 4), (Runs{{10, 1, 8}}));
    EXPECT_EQ(common_runs(held, text + Tokens{999}, 9, 4), Runs{});
    EXPECT_EQ(common_runs(held, text, 8, 4), Runs{});  // the last token is not to be kept
    EXPECT_EQ(common_runs(held, text, 7, 4), (Runs{{10, 1, 7}}));
    EXPECT_EQ(common_runs(held, text, 0, 4), Runs{});
}

TEST(CommonRuns, BeginningCountsHoweverShort) {
    const Tokens held = counted(0, 30);
    EXPECT_EQ(common_runs(held, held, 8, 4), (Runs{{0, 0, 29}}));
    EXPECT_EQ(common_runs(held, Tokens{0, 1, 50}, 8, 4), (Runs{{0, 0, 2}}));
    EXPECT_EQ(common_runs(held, Tokens{0, 1, 50}, 0, 0), (Runs{{0, 0, 2}}));
    EXPECT_EQ(common_runs(held, Tokens{0}, 8, 4), Runs{});
    EXPECT_EQ(common_runs({}, held, 8, 4), Runs{});
}

TEST(CommonRuns, LongestAreTaken) {
    Tokens held, text;
    for (const size_t n : {5u, 9u, 6u, 8u, 7u}) {
        const Tokens run = counted(static_cast<Token>(1000 * n), n);
        held = held + Tokens{1} + run;
        text = text + Tokens{2, 3} + run;
    }
    const Runs two = common_runs(held, text + Tokens{4}, 5, 2);
    ASSERT_EQ(two.size(), 2u);
    EXPECT_EQ(two[0].n, 9u);
    EXPECT_EQ(two[1].n, 8u);
    EXPECT_EQ(common_runs(held, text + Tokens{4}, 5, 9).size(), 5u);
}

RC_GTEST_PROP(CommonRuns, AreCommonInOrderAndTheLongest, ()) {
    const auto token = rc::gen::inRange<Token>(0, 4);
    const auto held = *rc::gen::container<Tokens>(token);
    const auto text = *rc::gen::nonEmpty(rc::gen::container<Tokens>(token));
    const auto at_least = *rc::gen::inRange<size_t>(1, 6);
    const auto most = *rc::gen::inRange<size_t>(0, 5);
    const Runs runs = common_runs(held, text, at_least, most);
    size_t from = 0, to = 0, moved = 0, longest = 0, same = 0;
    for (const CommonRun& run : runs) {
        RC_ASSERT(run.from >= from);
        RC_ASSERT(run.to >= to);
        from = run.from + run.n;
        to = run.to + run.n;
        RC_ASSERT(from <= held.size());
        RC_ASSERT(to < text.size());
        RC_ASSERT(std::equal(held.begin() + static_cast<ptrdiff_t>(run.from),
                             held.begin() + static_cast<ptrdiff_t>(from),
                             text.begin() + static_cast<ptrdiff_t>(run.to)));
        if (run.from == 0 && run.to == 0) {
            same = run.n;
            continue;
        }
        RC_ASSERT(run.n >= at_least);
        longest = std::max(longest, run.n);
        moved++;
    }
    RC_ASSERT(moved <= most);
    const auto rest = [same](const Tokens& tokens, size_t less) {
        return Tokens(tokens.begin() + static_cast<ptrdiff_t>(same),
                      tokens.end() - static_cast<ptrdiff_t>(less));
    };
    const size_t plainly = plainly_longest(rest(held, 0), rest(text, 1));
    if (most > 0 && plainly >= at_least) {
        RC_ASSERT(longest == plainly);
    }
}

}  // namespace
}  // namespace cellar
