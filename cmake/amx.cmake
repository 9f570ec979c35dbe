# Intel AMX multiplies quantized weights several times as fast as AVX-512, but GCC 12's tile
# intrinsics are declared wrongly and ggml's kernels crash under -O2 (docs/decisions has the story).
# We give that one file the right declarations, and ask the machine whether they hold.
#   AUTO  where the compiler's target has AMX, and cmake/amx_probe.cpp runs
#   ON    where the compiler's target has AMX, unasked
#   OFF   never
set(CELLAR_AMX AUTO CACHE STRING "ggml's AMX kernels: AUTO (if they work here), ON or OFF")
set_property(CACHE CELLAR_AMX PROPERTY STRINGS AUTO ON OFF)

# Sets `result` to whether AMX may be used. Crossing to another machine, only its owner can know.
function(cellar_amx_works result)
    if(CELLAR_AMX STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING)
        try_run(CELLAR_AMX_PROBE_RUN CELLAR_AMX_PROBE_BUILT
            "${PROJECT_BINARY_DIR}/amx_probe" "${PROJECT_SOURCE_DIR}/cmake/amx_probe.cpp"
            COMPILE_DEFINITIONS -O3 -march=native
                -include "${PROJECT_SOURCE_DIR}/cmake/amx_intrinsics.h")
        if(NOT CELLAR_AMX_PROBE_BUILT OR NOT CELLAR_AMX_PROBE_RUN EQUAL 0)
            set(${result} OFF PARENT_SCOPE)
            return()
        endif()
    elseif(CELLAR_AMX STREQUAL "OFF")
        set(${result} OFF PARENT_SCOPE)
        return()
    endif()
    set(${result} ON PARENT_SCOPE)
endfunction()

# To be called once ggml's targets exist; `source` is ggml's folder.
function(cellar_fit_amx source)
    if(NOT TARGET ggml-cpu OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" OR MSVC)
        return()
    endif()
    cellar_amx_works(works)
    if(works)
        set_source_files_properties("${source}/src/ggml-cpu/amx/mmq.cpp"
            TARGET_DIRECTORY ggml-cpu
            PROPERTIES COMPILE_OPTIONS
                "-include;${PROJECT_SOURCE_DIR}/cmake/amx_intrinsics.h")
    else()
        message(STATUS "ggml: without AMX (CELLAR_AMX=${CELLAR_AMX})")
        target_compile_options(ggml-cpu PRIVATE -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
    endif()
endfunction()
