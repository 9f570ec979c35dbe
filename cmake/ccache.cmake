# Compiles through ccache where it is installed: a second preset, or a fresh clone, costs little.
find_program(CELLAR_CCACHE ccache)
mark_as_advanced(CELLAR_CCACHE)
set(GGML_CCACHE OFF CACHE BOOL "" FORCE)  # once is enough
if(CELLAR_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER "${CELLAR_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CELLAR_CCACHE}")
endif()
