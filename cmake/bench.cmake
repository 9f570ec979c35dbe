# One program per file: bench/<name>_bench.cpp becomes <name>_bench, by Google Benchmark unless it
# has a main of its own. The packages are asked for only when there is one.
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*_bench.cpp")
if(bench_sources)
    find_package(benchmark REQUIRED)
    find_package(CLI11 REQUIRED)
    # What this machine can do at best, for benchmarks to compare with.
    add_library(cellar_bench STATIC "${PROJECT_SOURCE_DIR}/bench/machine.cpp")
    target_include_directories(cellar_bench PUBLIC "${PROJECT_SOURCE_DIR}/bench")
    target_link_libraries(cellar_bench PRIVATE cellar_flags PUBLIC PkgConfig::highway)
endif()
foreach(source ${bench_sources})
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE
        cellar_engine cellar_bench cellar_flags CLI11::CLI11
        benchmark::benchmark benchmark::benchmark_main)
endforeach()
