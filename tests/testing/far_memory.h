#pragma once

struct ggml_backend_buffer_type;

namespace cellar::testing {

// Memory that says it is not the host's, as an accelerator's does, though it is: what must not read
// it in place can be seen to go round. It belongs to the CPU, which computes with it all the same,
// or to a device that nobody has. Null where ggml was installed without its inner headers.
ggml_backend_buffer_type* far_memory(bool of_cpu = true);

}  // namespace cellar::testing
