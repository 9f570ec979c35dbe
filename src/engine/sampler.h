#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/types.h"

namespace cellar {

// How the next token is chosen. The steps run in llama.cpp's default order: repetition penalty,
// top-k, top-p, min-p, temperature; each sees only what the step before it left.
struct SamplerParams {
    float temperature = 0.8f;     // divides the logits; 0 or less: always the likeliest token
    uint32_t top_k = 40;          // keep the k likeliest tokens; 0: all
    float top_p = 0.95f;          // keep the likeliest that together reach chance p; 1: all
    float min_p = 0.05f;          // keep those of at least min_p times the likeliest's; 0: all
    float repeat_penalty = 1.0f;  // of recent tokens: logits above 0 divided by it, others times it
    int32_t repeat_last_n = 64;   // how many tokens are recent; 0: none, -1: the whole text
    uint64_t seed = 0;
};

// Chooses one sequence's tokens. Deterministic: equal parameters, logits and history give equal
// tokens on every platform (up to the last bit of the platform's exp). Among equal logits the
// lower id counts as the likelier.
class Sampler {
public:
    // Errors: kInvalidArgument, naming the parameter and what it may be.
    static Result<Sampler> create(const SamplerParams& params);

    // Takes note of a token that stands in the text now, of the prompt or chosen.
    void accept(Token token);

    // The next token after `logits` [n_vocab]; does not accept it. A logit of -inf bans its token.
    // O(n_vocab), and O(n log n) in the tokens that top-p has to rank.
    // Errors: kBackend for logits that are NaN or +inf, or all -inf: the computation went wrong.
    Result<Token> sample(std::span<const float> logits);

private:
    struct Candidate {
        Token token;
        float logit;
    };

    explicit Sampler(const SamplerParams& params) : params_(params), random_(params.seed) {}

    bool penalizes() const { return params_.repeat_penalty != 1.0f && params_.repeat_last_n != 0; }
    static bool likelier(const Candidate& a, const Candidate& b);
    void fill(std::span<const float> logits);
    void penalize();
    void keep_top_k();
    void keep_top_p();
    void keep_min_p();
    void drop_below(float bound);
    Token likeliest() const;
    Token draw();
    double uniform();

    SamplerParams params_;
    std::mt19937_64 random_;             // its numbers are the standard's; distributions differ
    std::vector<Token> recent_;          // oldest first; empty unless there is a penalty
    std::vector<Candidate> candidates_;  // what the steps have left so far
    std::vector<double> weights_;        // draw's, by candidate; kept for its room
};

}  // namespace cellar
