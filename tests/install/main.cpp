// Takes a memory of two layers, holds three tokens, and forks them: the whole of what an engine
// needs of Cellar to link and start.
#include <cstdio>
#include <cstdlib>

#include "memory/memory.h"

namespace {

cellar::MemoryConfig two_layers() {
    cellar::MemoryConfig config;
    config.layers = {{0, 2, 64, 64}, {0, 2, 64, 64}};
    config.n_cells = 128;
    return config;
}

}  // namespace

int main() {
    auto memory = cellar::Memory::create(two_layers());
    if (!memory) {
        std::fprintf(stderr, "%s\n", memory.error().message.c_str());
        return EXIT_FAILURE;
    }
    const bool empty = (*memory)->seq_pos_max(cellar::SeqId{0}) < 0;
    return empty && (*memory)->bytes() > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
