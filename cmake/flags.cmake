# Sanitizers apply to ggml and to us alike, or their shadow memory would have holes.
if(CELLAR_SANITIZE)
    add_compile_options(-fsanitize=${CELLAR_SANITIZE} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${CELLAR_SANITIZE})
    if(CELLAR_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()

# What our own targets are compiled with, and nobody else's. Tests are let off -Wshadow: around the
# `info` that the namer of an INSTANTIATE_TEST_SUITE_P takes, the macro has one of its own.
add_library(cellar_flags INTERFACE)
target_compile_features(cellar_flags INTERFACE cxx_std_20)
target_compile_options(cellar_flags INTERFACE -Wall -Wextra -Wconversion
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:CELLAR_IS_TEST>>>:-Wshadow>)
# GCC 12 imagines overlaps in std::string's operator+ (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(cellar_flags INTERFACE -Wno-restrict)
endif()
if(CELLAR_WERROR)
    target_compile_options(cellar_flags INTERFACE -Werror)
endif()
if(CELLAR_COVERAGE)
    target_compile_options(cellar_flags INTERFACE --coverage)
    target_link_options(cellar_flags INTERFACE --coverage)
endif()
