#pragma once

#include <cstdint>

struct ggml_backend_device;

namespace cellar::testing {

// A device of another make, as an accelerator is: with memory of its own that nobody else reads,
// and operations that it lacks (custom ones). Underneath it is the CPU. It ends the process if it
// is made to touch memory that is not its own. ggml lists it, as "FAR0", from the first call on.
// Null where ggml was installed without its inner headers.
ggml_backend_device* far_device();

// Operations that it has computed since the start.
uint64_t computed_far_away();

}  // namespace cellar::testing
