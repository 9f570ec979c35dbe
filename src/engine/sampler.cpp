#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cellar {

namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// The errors name what the logits held, since a user can only report it.
Result<void> check(std::span<const float> logits) {
    bool any = false;
    for (size_t i = 0; i < logits.size(); i++) {
        const float logit = logits[i];
        if (!(logit <= std::numeric_limits<float>::max())) {
            return fail(Code::kBackend,
                        fmt::format("the model computed {} as the logit of token {} of {}",
                                    std::isnan(logit) ? "NaN" : "infinity", i, logits.size()));
        }
        any = any || logit != kBanned;
    }
    if (!any) {
        return fail(Code::kBackend, fmt::format("none of the {} tokens has a logit above -infinity",
                                                logits.size()));
    }
    return {};
}

}  // namespace

Result<Sampler> Sampler::create(const SamplerParams& params) {
    const auto refuse = [](std::string_view what, double given, std::string_view range) {
        return fail(Code::kInvalidArgument,
                    fmt::format("{} is {}; it must be {}", what, given, range));
    };
    // Written so that NaN fails each test.
    if (!std::isfinite(params.temperature)) {
        return refuse("temperature", params.temperature, "a finite number");
    }
    if (!(params.top_p >= 0.0f && params.top_p <= 1.0f)) {
        return refuse("top-p", params.top_p, "from 0 to 1");
    }
    if (!(params.min_p >= 0.0f && params.min_p <= 1.0f)) {
        return refuse("min-p", params.min_p, "from 0 to 1");
    }
    if (!(params.repeat_penalty > 0.0f && std::isfinite(params.repeat_penalty))) {
        return refuse("repeat-penalty", params.repeat_penalty, "a finite number above 0");
    }
    if (params.repeat_last_n < -1) {
        return refuse("repeat-last-n", params.repeat_last_n,
                      "-1 (the whole text), 0 (off) or more");
    }
    return Sampler(params);
}

void Sampler::accept(Token token) {
    if (!penalizes()) {
        return;
    }
    recent_.push_back(token);
    // Old tokens go in bulk, so that each costs O(1).
    const auto window = static_cast<size_t>(std::max(params_.repeat_last_n, 0));
    if (window > 0 && recent_.size() >= 2 * window) {
        recent_.erase(recent_.begin(), recent_.end() - static_cast<ptrdiff_t>(window));
    }
}

Result<Token> Sampler::sample(std::span<const float> logits) {
    if (Result<void> sound = check(logits); !sound) {
        return pass(std::move(sound));
    }
    fill(logits);
    penalize();
    if (params_.temperature <= 0.0f) {
        return likeliest();
    }
    keep_top_k();
    keep_top_p();
    keep_min_p();
    return draw();
}

bool Sampler::likelier(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

void Sampler::fill(std::span<const float> logits) {
    candidates_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); i++) {
        candidates_[i] = {static_cast<Token>(i), logits[i]};
    }
}

// As in llama.cpp and the CTRL paper (https://arxiv.org/abs/1909.05858, section 4.1), once for each
// distinct token.
void Sampler::penalize() {
    if (!penalizes()) {
        return;
    }
    size_t n = recent_.size();
    if (params_.repeat_last_n > 0) {
        n = std::min(n, static_cast<size_t>(params_.repeat_last_n));
    }
    std::vector<Token> distinct(recent_.end() - static_cast<ptrdiff_t>(n), recent_.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const Token token : distinct) {
        if (token < 0 || static_cast<size_t>(token) >= candidates_.size()) {
            continue;
        }
        float& logit = candidates_[static_cast<size_t>(token)].logit;
        if (logit != kBanned) {
            // An extreme penalty overflows; it must neither ban the token nor make it infinite.
            using Limits = std::numeric_limits<float>;
            const float penalty = params_.repeat_penalty;
            logit = std::clamp(logit > 0.0f ? logit / penalty : logit * penalty, Limits::lowest(),
                               Limits::max());
        }
    }
}

void Sampler::keep_top_k() {
    const size_t k = params_.top_k;
    if (k == 0 || k >= candidates_.size()) {
        return;
    }
    const auto end = candidates_.begin() + static_cast<ptrdiff_t>(k);
    std::partial_sort(candidates_.begin(), end, candidates_.end(), likelier);
    candidates_.erase(end, candidates_.end());
}

void Sampler::keep_top_p() {
    if (params_.top_p >= 1.0f) {
        return;
    }
    const float max = std::min_element(candidates_.begin(), candidates_.end(), likelier)->logit;
    double sum = 0.0;
    for (const Candidate& c : candidates_) {
        sum += std::exp(static_cast<double>(c.logit) - max);
    }
    // Most tokens need no ranking: those below an n-th of what p leaves over weigh less than that
    // together, so p is reached before the first of them.
    const double crumb = (1.0 - params_.top_p) * sum / static_cast<double>(candidates_.size());
    drop_below(max + static_cast<float>(std::log(crumb)));
    std::sort(candidates_.begin(), candidates_.end(), likelier);
    double left = params_.top_p * sum;
    for (size_t i = 0; i < candidates_.size(); i++) {
        left -= std::exp(static_cast<double>(candidates_[i].logit) - max);
        if (left <= 0.0) {
            candidates_.resize(i + 1);
            return;
        }
    }
}

// p >= min_p * p_max, as a bound on logits.
void Sampler::keep_min_p() {
    if (params_.min_p > 0.0f) {
        drop_below(std::min_element(candidates_.begin(), candidates_.end(), likelier)->logit +
                   std::log(params_.min_p));
    }
}

void Sampler::drop_below(float bound) {
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                     [bound](const Candidate& c) { return c.logit < bound; }),
                      candidates_.end());
}

Token Sampler::likeliest() const {
    return std::min_element(candidates_.begin(), candidates_.end(), likelier)->token;
}

Token Sampler::draw() {
    const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), likelier);
    // In the order of ids, so that the draw does not depend on how a library's nth_element
    // permutes.
    const auto lower_id = [](const Candidate& a, const Candidate& b) { return a.token < b.token; };
    if (!std::is_sorted(candidates_.begin(), candidates_.end(), lower_id)) {
        std::sort(candidates_.begin(), candidates_.end(), lower_id);
    }
    weights_.clear();
    double sum = 0.0;
    for (const Candidate& c : candidates_) {
        weights_.push_back(
            std::exp((static_cast<double>(c.logit) - best.logit) / params_.temperature));
        sum += weights_.back();
    }
    double left = uniform() * sum;
    for (size_t i = 0; i < candidates_.size(); i++) {
        left -= weights_[i];
        if (left < 0.0) {
            return candidates_[i].token;
        }
    }
    return best.token;  // rounding left a crumb over
}

// 53 random bits as a number in [0, 1).
double Sampler::uniform() {
    return static_cast<double>(random_() >> 11) * 0x1p-53;
}

}  // namespace cellar
