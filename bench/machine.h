#pragma once

#include <cstddef>
#include <cstdint>

namespace cellar::bench {

// What this machine can do at best, measured: the bounds that attention is compared with.

size_t last_level_cache();  // bytes

// Bytes a second that `n_threads` read from `bytes` of memory, each its own part; the best of some
// passes.
double read_bandwidth(size_t bytes, int n_threads);

// Fused multiply-adds in f32, two operations each, in a second on `n_threads`, out of registers and
// with the widest vectors that the CPU has.
double peak_flops(int n_threads);

}  // namespace cellar::bench
