# One libFuzzer program per file: fuzz/<name>_fuzz.cpp becomes <name>_fuzz; `fuzzers` builds them all.
add_custom_target(fuzzers)

# What they share with the tests, without GoogleTest.
add_library(cellar_fuzzing STATIC
    "${PROJECT_SOURCE_DIR}/tests/testing/cells_history.cpp"
    "${PROJECT_SOURCE_DIR}/tests/testing/poison.cpp")
target_include_directories(cellar_fuzzing PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(cellar_fuzzing PUBLIC cellar_state PRIVATE cellar_flags)

file(GLOB fuzz_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cpp")
foreach(source ${fuzz_sources})
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE cellar_fuzzing cellar_flags)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
endforeach()
