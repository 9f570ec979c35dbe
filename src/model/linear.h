#pragma once

#include <cstdint>
#include <string>

struct ggml_tensor;

namespace cellar {

class WeightsLoader;

// A matrix product's weights. What is null is left out.
struct Linear {
    ggml_tensor* weight = nullptr;  // [n_in, n_out]
    ggml_tensor* bias = nullptr;    // [n_out]
    ggml_tensor* scale = nullptr;   // [1], of the whole product
};

struct MatrixShape {
    int64_t n_in;
    int64_t n_out;
};

// Asks for `<name>.weight`, and for a bias and a scale if the file has them.
Linear ask_linear(WeightsLoader& loader, const std::string& name, MatrixShape shape);

}  // namespace cellar
