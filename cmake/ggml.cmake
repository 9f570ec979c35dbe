# ggml, as the target cellar::ggml. The first of these that applies:
#   1. a target `ggml` that the including project has already made;
#   2. -DCELLAR_GGML_SOURCE=DIR: that source tree, of any version;
#   3. an installed ggml (find_package), unless -DCELLAR_SYSTEM_GGML=OFF; with ON it must be there;
#   4. the pinned source that `tools/fetch.py ggml` unpacks (ggml 0.15.3).
# Our presets say OFF: an installed ggml is rarely built for this very CPU, and never with sanitizers.
include(amx)

set(CELLAR_GGML_SOURCE "" CACHE PATH "A ggml source tree to build instead of the pinned one")
set(CELLAR_SYSTEM_GGML AUTO CACHE STRING "Use an installed ggml: AUTO (if found), ON or OFF")
set_property(CACHE CELLAR_SYSTEM_GGML PROPERTY STRINGS AUTO ON OFF)
set(CELLAR_PINNED_GGML "${PROJECT_SOURCE_DIR}/build/third_party/ggml")

# Builds ggml from `source` as static libraries, without its warnings.
function(cellar_build_ggml source)
    set(BUILD_SHARED_LIBS OFF)
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    set(GGML_LLAMAFILE ON CACHE BOOL "ggml: use LLAMAFILE")
    set(GGML_ALL_WARNINGS OFF CACHE BOOL "ggml: enable all compiler warnings")
    set(GGML_BUILD_TESTS OFF CACHE BOOL "ggml: build tests")
    set(GGML_BUILD_EXAMPLES OFF CACHE BOOL "ggml: build examples")
    set(GIT_EXE OFF CACHE INTERNAL "ggml would take our commit for its own, and rebuild after each")
    add_subdirectory("${source}" "${PROJECT_BINARY_DIR}/ggml" EXCLUDE_FROM_ALL)
    foreach(target ggml ggml-base ggml-cpu)
        if(TARGET ${target})
            target_compile_options(${target} PRIVATE -w)
            # Its kernels read packed weights at any address, and round numbers that no quant can
            # hold to any of them: x86 allows that, C++ does not.
            if(CELLAR_SANITIZE MATCHES "undefined")
                target_compile_options(${target} PRIVATE
                    -fno-sanitize=alignment,float-cast-overflow)
            endif()
            # A debug build is for our code; at -O0, ggml's kernels would make every test slow.
            if(NOT CELLAR_SANITIZE)
                target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O2>)
            endif()
        endif()
    endforeach()
endfunction()

if(NOT TARGET ggml)
    if(NOT CELLAR_GGML_SOURCE AND NOT CELLAR_SYSTEM_GGML STREQUAL "OFF")
        find_package(ggml QUIET)
        if(CELLAR_SYSTEM_GGML STREQUAL "ON" AND NOT ggml_FOUND)
            message(FATAL_ERROR "CELLAR_SYSTEM_GGML=ON, but find_package(ggml) finds none.")
        endif()
    endif()
    if(NOT ggml_FOUND)
        set(source "${CELLAR_GGML_SOURCE}")
        if(NOT source)
            set(source "${CELLAR_PINNED_GGML}")
        endif()
        if(NOT EXISTS "${source}/include/ggml.h")
            message(FATAL_ERROR "No ggml in ${source}. Run `tools/fetch.py ggml` first, or give "
                "-DCELLAR_GGML_SOURCE=DIR.")
        endif()
        message(STATUS "ggml: ${source}")
        cellar_build_ggml("${source}")
        cellar_fit_amx("${source}")
    endif()
endif()

add_library(cellar_ggml INTERFACE)
add_library(cellar::ggml ALIAS cellar_ggml)
if(TARGET ggml)
    target_link_libraries(cellar_ggml INTERFACE ggml)
    # ggml's headers as system headers: their warnings are not ours.
    get_target_property(include ggml-base INTERFACE_INCLUDE_DIRECTORIES)
    target_include_directories(cellar_ggml SYSTEM INTERFACE ${include})
else()
    target_link_libraries(cellar_ggml INTERFACE ggml::ggml)
endif()
