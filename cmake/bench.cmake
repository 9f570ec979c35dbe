# One Google Benchmark program per file: bench/<name>_bench.cpp becomes <name>_bench. The package
# is asked for only when there is one.
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*_bench.cpp")
if(bench_sources)
    find_package(benchmark REQUIRED)
endif()
foreach(source ${bench_sources})
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE
        cellar_engine cellar_flags benchmark::benchmark benchmark::benchmark_main)
endforeach()
