# Everything but ggml comes from the distribution (Debian's names: tools/setup.sh).
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

if(CELLAR_BUILD_CLI OR CELLAR_BUILD_TESTS OR CELLAR_BUILD_BENCH)
    find_package(nlohmann_json REQUIRED)
    find_package(CLI11 REQUIRED)
    pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
endif()

if(CELLAR_BUILD_TESTS)
    find_package(GTest REQUIRED)
    find_package(rapidcheck REQUIRED)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
