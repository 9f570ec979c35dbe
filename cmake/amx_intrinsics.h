#pragma once

// Included ahead of ggml's AMX kernels (cmake/amx.cmake), to give GCC's tile intrinsics the memory
// that they read and write.
//
// GCC 12 declares _tile_loadconfig as reading 8 bytes of the 64 that the instruction reads, so the
// optimiser deletes the stores to the rest, and the next tile instruction faults with SIGILL.
// _tile_loadd declares no memory at all, so stores to a tile's source may move behind the load.
// Here each says what it does. Other compilers have builtins that know.

#if defined(__GNUC__) && !defined(__clang__) && defined(__AMX_TILE__)

#include <immintrin.h>

static inline void cellar_tile_loadconfig(const void* config) {
    __asm__ volatile("ldtilecfg\t%X0" ::"m"(*static_cast<const char(*)[64]>(config)));
}

static inline void cellar_tile_storeconfig(void* config) {
    __asm__ volatile("sttilecfg\t%X0" : "=m"(*static_cast<char(*)[64]>(config)));
}

#define _tile_loadconfig(config) cellar_tile_loadconfig(config)
#define _tile_storeconfig(config) cellar_tile_storeconfig(config)

#undef _tile_loadd
#define _tile_loadd(tile, base, stride) cellar_tile_loadd(tile, base, stride)
#define cellar_tile_loadd(tile, base, stride)                                        \
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm" #tile ::"r"((const void*)(base)), \
                     "r"((long)(stride))                                             \
                     : "memory")

#endif
