// Histories of verbs, read from the fuzzer's bytes and judged by the naive model after each step:
// the same driver as tests/cells/history_test.cpp. The first byte chooses the setting.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "testing/cells_history.h"

namespace cellar::testing {
namespace {

const HistoryConfig& setting(uint8_t choice) {
    static const HistoryConfig kSettings[] = {{{60}, 1, 1, 4},
                                              {{120}, 2, 1, 4},
                                              {{512}, 32, 1, 4},
                                              {{512, 320}, 8, 1, 4},
                                              {{512}, 16, 4, 4}};
    return kSettings[choice % (sizeof(kSettings) / sizeof(kSettings[0]))];
}

// Little-endian, nine bytes a step.
Step read_step(const uint8_t* bytes) {
    const auto number = [](const uint8_t* b) { return static_cast<int16_t>(b[0] | (b[1] << 8)); };
    return {bytes[0], bytes[1], bytes[2], number(bytes + 3), number(bytes + 5), number(bytes + 7)};
}

void must_be_nothing(const std::optional<std::string>& finding) {
    if (!finding) return;
    std::fprintf(stderr, "%s\n", finding->c_str());
    std::abort();
}

}  // namespace
}  // namespace cellar::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace cellar::testing;
    if (size == 0) return 0;
    CellsHistory history(setting(data[0]));
    for (size_t at = 1; at + 9 <= size; at += 9)
        must_be_nothing(history.apply(read_step(data + at)));
    must_be_nothing(history.finish());
    return 0;
}
