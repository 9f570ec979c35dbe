#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace cellar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Nothing but temperature 1: each test sets the step that it is about.
SamplerParams plain() {
    SamplerParams params;
    params.temperature = 1.0f;
    params.top_k = 0;
    params.top_p = 1.0f;
    params.min_p = 0.0f;
    params.seed = 42;
    return params;
}

Sampler make(const SamplerParams& params) {
    return *Sampler::create(params);
}

// How often each token comes in `n` draws.
std::map<Token, int> draw(Sampler& sampler, const std::vector<float>& logits, int n) {
    std::map<Token, int> counts;
    for (int i = 0; i < n; i++) {
        counts[*sampler.sample(logits)]++;
    }
    return counts;
}

std::vector<float> logs(std::vector<float> chances) {
    for (float& chance : chances) {
        chance = std::log(chance);
    }
    return chances;
}

TEST(SamplerTest, DrawsInProportionToChances) {
    Sampler sampler = make(plain());
    const auto counts = draw(sampler, logs({0.5f, 0.25f, 0.125f, 0.125f}), 40000);
    // Five standard deviations of a binomial of 40,000 draws are at most 500.
    EXPECT_NEAR(counts.at(0), 20000, 500);
    EXPECT_NEAR(counts.at(1), 10000, 500);
    EXPECT_NEAR(counts.at(2), 5000, 500);
    EXPECT_NEAR(counts.at(3), 5000, 500);
}

TEST(SamplerTest, TemperatureSharpensAndFlattens) {
    const std::vector<float> logits = logs({0.8f, 0.2f});
    SamplerParams params = plain();
    params.temperature = 0.5f;  // chances to the power of 2: 16 to 1
    Sampler cold = make(params);
    EXPECT_NEAR(draw(cold, logits, 40000).at(0), 40000.0 * 16 / 17, 300);
    params.temperature = 2.0f;  // square roots: 2 to 1
    Sampler hot = make(params);
    EXPECT_NEAR(draw(hot, logits, 40000).at(0), 40000.0 * 2 / 3, 500);
}

TEST(SamplerTest, SameSeedSameTokensOtherSeedOthers) {
    const std::vector<float> logits(1000, 0.0f);
    SamplerParams params = plain();
    Sampler a = make(params);
    Sampler b = make(params);
    params.seed = 43;
    Sampler c = make(params);
    int differences = 0;
    for (int i = 0; i < 100; i++) {
        const Token token = *a.sample(logits);
        EXPECT_EQ(token, *b.sample(logits));
        differences += token != *c.sample(logits);
    }
    EXPECT_GT(differences, 90);
}

// The first numbers of std::mt19937_64 are the standard's, so these tokens hold everywhere.
TEST(SamplerTest, TokensOfASeedAreFixed) {
    const std::vector<float> logits(100, 0.0f);
    Sampler sampler = make(plain());
    std::vector<Token> tokens;
    for (int i = 0; i < 5; i++) {
        tokens.push_back(*sampler.sample(logits));
    }
    EXPECT_EQ(tokens, (std::vector<Token>{75, 63, 75, 13, 90}));
}

TEST(SamplerTest, GreedyTakesTheLikeliestAndTheLowerIdOfEquals) {
    SamplerParams params;
    for (const float temperature : {0.0f, -1.0f}) {
        params.temperature = temperature;
        Sampler sampler = make(params);
        EXPECT_EQ(*sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
        EXPECT_EQ(*sampler.sample(std::vector<float>{-kInf, -5}), 1);
        EXPECT_EQ(*sampler.sample(std::vector<float>{7}), 0);
    }
}

TEST(SamplerTest, TopKKeepsTheKLikeliest) {
    const std::vector<float> logits{1, 3, 2, 3, 0};
    struct Case {
        uint32_t k;
        std::vector<Token> kept;
    };
    for (const Case& c : {Case{1, {1}}, Case{2, {1, 3}}, Case{3, {1, 2, 3}},
                          Case{5, {0, 1, 2, 3, 4}}, Case{UINT32_MAX, {0, 1, 2, 3, 4}}}) {
        SamplerParams params = plain();
        params.top_k = c.k;
        Sampler sampler = make(params);
        std::vector<Token> kept;
        for (const auto& [token, count] : draw(sampler, logits, 2000)) {
            kept.push_back(token);
        }
        EXPECT_EQ(kept, c.kept) << "k = " << c.k;
    }
}

TEST(SamplerTest, TopPKeepsTheFewestThatReachP) {
    const std::vector<float> logits = logs({0.1f, 0.5f, 0.3f, 0.1f});
    struct Case {
        float p;
        std::vector<Token> kept;
    };
    for (const Case& c : {Case{0.0f, {1}}, Case{0.01f, {1}}, Case{0.49f, {1}}, Case{0.51f, {1, 2}},
                          Case{0.79f, {1, 2}}, Case{0.85f, {0, 1, 2}}, Case{0.95f, {0, 1, 2, 3}},
                          Case{1.0f, {0, 1, 2, 3}}}) {
        SamplerParams params = plain();
        params.top_p = c.p;
        Sampler sampler = make(params);
        std::vector<Token> kept;
        for (const auto& [token, count] : draw(sampler, logits, 2000)) {
            kept.push_back(token);
        }
        EXPECT_EQ(kept, c.kept) << "p = " << c.p;
    }
}

// Most of a large vocabulary is never ranked; that must not show.
TEST(SamplerTest, TopPOfAFlatVocabularyKeepsItsShare) {
    const std::vector<float> logits(1000, 0.5f);
    SamplerParams params = plain();
    params.top_p = 0.25f;
    Sampler sampler = make(params);
    const auto counts = draw(sampler, logits, 2000);
    EXPECT_LT(counts.rbegin()->first, 251);  // equals: the lower ids count as likelier
    EXPECT_GT(counts.rbegin()->first, 240);
}

TEST(SamplerTest, MinPKeepsWhatIsLikelyBesideTheLikeliest) {
    const std::vector<float> logits = logs({0.6f, 0.29f, 0.06f, 0.05f});
    struct Case {
        float p;
        size_t kept;
    };
    for (const Case& c :
         {Case{0.0f, 4}, Case{0.09f, 3}, Case{0.2f, 2}, Case{0.5f, 1}, Case{1.0f, 1}}) {
        SamplerParams params = plain();
        params.min_p = c.p;
        Sampler sampler = make(params);
        EXPECT_EQ(draw(sampler, logits, 4000).size(), c.kept) << "p = " << c.p;
    }
}

TEST(SamplerTest, StepsSeeWhatTheStepBeforeLeft) {
    // Of the two that top-k leaves, the likelier has 0.57 and reaches top-p by itself.
    const std::vector<float> logits = logs({0.4f, 0.3f, 0.3f});
    SamplerParams params = plain();
    params.top_k = 2;
    params.top_p = 0.5f;
    Sampler sampler = make(params);
    EXPECT_EQ(draw(sampler, logits, 500).size(), 1u);
}

TEST(SamplerTest, PenaltyPushesRecentTokensDown) {
    SamplerParams params = plain();
    params.temperature = 0.0f;
    params.repeat_penalty = 2.0f;
    Sampler sampler = make(params);
    const std::vector<float> logits{4.0f, 3.0f, -1.0f};
    EXPECT_EQ(*sampler.sample(logits), 0);
    sampler.accept(0);
    EXPECT_EQ(*sampler.sample(logits), 1);  // 4 / 2 < 3
    sampler.accept(0);
    sampler.accept(1);
    EXPECT_EQ(*sampler.sample(logits), 0);  // once for each distinct token: 2 against 1.5
    EXPECT_EQ(*sampler.sample(std::vector<float>{-1.0f, -1.5f, -1.9f}), 2);  // -2, -3, -1.9
}

TEST(SamplerTest, PenaltyForgetsWhatIsNotRecent) {
    const std::vector<float> logits{4.0f, 3.0f};
    struct Case {
        int32_t last_n;
        Token token;
    };
    for (const Case& c : {Case{0, 0}, Case{10, 0}, Case{100, 1}, Case{101, 1}, Case{-1, 1}}) {
        SamplerParams params = plain();
        params.temperature = 0.0f;
        params.repeat_penalty = 2.0f;
        params.repeat_last_n = c.last_n;
        Sampler sampler = make(params);
        sampler.accept(0);
        for (int i = 0; i < 99; i++) {
            sampler.accept(5);  // beyond these logits: does no harm
        }
        EXPECT_EQ(*sampler.sample(logits), c.token) << "last " << c.last_n;
    }
}

TEST(SamplerTest, ExtremePenaltiesStayFinite) {
    for (const float penalty : {1e-38f, 3e38f}) {
        SamplerParams params = plain();
        params.repeat_penalty = penalty;
        Sampler sampler = make(params);
        sampler.accept(0);
        sampler.accept(1);
        EXPECT_TRUE(sampler.sample(std::vector<float>{1e30f, -1e30f, -kInf}));
    }
}

TEST(SamplerTest, BannedTokensNeverCome) {
    Sampler sampler = make(plain());
    EXPECT_EQ(draw(sampler, {-kInf, 0.0f, -kInf, 0.0f}, 1000).size(), 2u);
}

TEST(SamplerTest, LogitsThatAreNoNumbersAreErrors) {
    for (const float temperature : {0.0f, 1.0f}) {
        SamplerParams params = plain();
        params.temperature = temperature;
        Sampler sampler = make(params);
        for (const std::vector<float>& logits :
             {std::vector<float>{0, kNan, 1}, std::vector<float>{0, kInf},
              std::vector<float>{-kInf, -kInf}, std::vector<float>{}}) {
            const Result<Token> token = sampler.sample(logits);
            ASSERT_FALSE(token);
            EXPECT_EQ(token.error().code, Code::kBackend);
        }
        EXPECT_EQ(sampler.sample(std::vector<float>{0, kNan, 1}).error().message,
                  "the model computed NaN as the logit of token 1 of 3");
    }
}

TEST(SamplerTest, ExtremeTemperaturesWork) {
    SamplerParams params = plain();
    params.temperature = 1e-40f;
    Sampler cold = make(params);
    EXPECT_EQ(draw(cold, {1.0f, 2.0f, 1.5f}, 100).at(1), 100);
    params.temperature = 1e30f;
    Sampler hot = make(params);
    EXPECT_EQ(draw(hot, {-100.0f, 0.0f, 100.0f}, 1000).size(), 3u);
}

TEST(SamplerTest, RefusesParametersOutOfRange) {
    const auto refused = [](auto change) {
        SamplerParams params;
        change(params);
        const Result<Sampler> made = Sampler::create(params);
        return !made && made.error().code == Code::kInvalidArgument;
    };
    EXPECT_TRUE(refused([](SamplerParams& p) { p.temperature = kNan; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.temperature = kInf; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.top_p = -0.1f; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.top_p = 1.5f; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.top_p = kNan; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.min_p = -0.1f; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.min_p = 2.0f; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.repeat_penalty = 0.0f; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.repeat_penalty = kInf; }));
    EXPECT_TRUE(refused([](SamplerParams& p) { p.repeat_last_n = -2; }));
    EXPECT_FALSE(refused([](SamplerParams&) {}));
}

}  // namespace
}  // namespace cellar
