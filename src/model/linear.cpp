#include "model/linear.h"

#include "model/weights.h"

namespace cellar {

Linear ask_linear(WeightsLoader& loader, const std::string& name, MatrixShape shape) {
    Linear linear;
    linear.weight = loader.require(name + ".weight", {shape.n_in, shape.n_out}, Use::kMulMat);
    linear.bias = loader.find(name + ".bias", {shape.n_out}, Use::kAdd);
    linear.scale = loader.find(name + ".scale", {1}, Use::kMul);
    return linear;
}

}  // namespace cellar
