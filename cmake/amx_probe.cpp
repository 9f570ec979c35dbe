// Does AMX work here, as this compiler and cmake/amx_intrinsics.h use it? Exit code 0 says yes, or
// that there is none to go wrong: not in this target, or not granted by the kernel (ggml asks,
// too). Anything else, a crash included, says no.

#if defined(__linux__) && defined(__AMX_INT8__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace {

struct TileConfig {
    uint8_t palette = 0;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {0};
    uint16_t bytes_per_row[16] = {0};
    uint8_t rows[16] = {0};
};

constexpr long kRequestPermission = 0x1023;
constexpr long kTileData = 18;

// As ggml does it, with the configuration gone out of scope when it returns: where its stores are
// thought dead, they are deleted.
inline void configure() {
    alignas(64) TileConfig config = {};
    config.palette = 1;
    for (int i = 0; i < 3; ++i) {
        config.rows[i] = 16;
        config.bytes_per_row[i] = 64;
    }
    _tile_loadconfig(&config);
}

// Multiplies ones by twos, 16 rows of 64 bytes: each of the 16 x 16 sums is 128.
bool multiplies() {
    configure();
    alignas(64) int8_t a[16][64], b[16][64];
    alignas(64) int32_t sums[16][16] = {};
    for (int i = 0; i < 16 * 64; ++i) {
        a[i / 64][i % 64] = 1;
        b[i / 64][i % 64] = 2;
    }
    _tile_zero(0);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, sums, 64);
    _tile_release();
    for (const auto& row : sums) {
        for (int32_t sum : row) {
            if (sum != 128) return false;
        }
    }
    return true;
}

}  // namespace

int main() {
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return 0;
    return multiplies() ? 0 : 1;
}

#else

int main() {
    return 0;
}

#endif
