#include "model/rope_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <vector>

namespace cellar {

namespace {

std::vector<float> read_factors(const Rope& rope) {
    std::vector<float> factors;
    if (rope.factors != nullptr) {
        factors.resize(static_cast<size_t>(ggml_nelements(rope.factors)));
        ggml_backend_tensor_get(rope.factors, factors.data(), 0, factors.size() * sizeof(float));
    }
    return factors;
}

// Floats in hexadecimal, so that none is rounded.
std::string text_of(const Rope& rope) {
    return fmt::format(
        "mode {} dims {} original {} base {:a} scale {:a} ext {:a} attn {:a} "
        "fast {:a} slow {:a} sections {} factors {:a}\n",
        rope.mode, rope.n_dims, rope.n_ctx_orig, rope.freq_base, rope.freq_scale, rope.ext_factor,
        rope.attn_factor, rope.beta_fast, rope.beta_slow, fmt::join(rope.sections, ","),
        fmt::join(read_factors(rope), ","));
}

}  // namespace

std::string rope_settings(const Model& model, uint32_t n_ctx) {
    std::string text;
    for (uint32_t layer = 0; layer < model.info().n_layer; layer++) {
        const auto rope = model.rope(layer, n_ctx);
        text += rope ? text_of(*rope) : "none\n";
    }
    return text;
}

}  // namespace cellar
