#pragma once

#include "memory/memory.h"

namespace cellar::cli {

// Lets the memory tell on standard error what is done with it, if the environment says so:
// CELLAR_DEBUG=1 adds counts after each operation, 2 also a map of who holds which page, 3 also
// positions. Each line costs a walk over the pool.
void log_memory(Memory& memory);

}  // namespace cellar::cli
