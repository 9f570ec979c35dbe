#pragma once

#include <cstdint>
#include <string>

#include "model/model.h"

namespace cellar {

// How the model's keys are turned in contexts of up to `n_ctx` tokens, as text that is the same
// exactly where all of it is the same, frequency factors included: what a digest is made of.
std::string rope_settings(const Model& model, uint32_t n_ctx);

}  // namespace cellar
