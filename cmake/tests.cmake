# One GoogleTest program per folder of tests/, found by name: tests/<room>/*_test.cpp become
# <room>_test. tests/cli/*_test.py drive the built program, named by $CELLAR_BIN.
include(GoogleTest)

# What tests share: fakes and the naive model (tests/testing).
file(GLOB testing_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/testing/*.cpp")
if(testing_sources)
    add_library(cellar_testing STATIC ${testing_sources})
    set(testing_scope PUBLIC)
    target_link_libraries(cellar_testing PRIVATE cellar_flags)
else()
    add_library(cellar_testing INTERFACE)
    set(testing_scope INTERFACE)
endif()
target_include_directories(cellar_testing ${testing_scope} "${PROJECT_SOURCE_DIR}/tests")
if(TARGET ggml-base AND testing_sources)
    # ggml's inner headers, for buffer types that tests make up.
    target_include_directories(cellar_testing SYSTEM PRIVATE $<TARGET_PROPERTY:ggml-base,SOURCE_DIR>)
endif()
target_compile_definitions(cellar_testing ${testing_scope}
    CELLAR_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    CELLAR_MODELS="${PROJECT_SOURCE_DIR}/models")
target_link_libraries(cellar_testing ${testing_scope}
    cellar_memory GTest::gtest GTest::gmock rapidcheck)

# cellar_test(<folder> <room>): tests/<folder>, allowed to use what <room> may use.
function(cellar_test folder room)
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cpp")
    if(NOT sources)
        return()
    endif()
    add_executable(${folder}_test ${sources})
    target_link_libraries(${folder}_test PRIVATE
        cellar_${room} cellar_testing cellar_flags GTest::gtest_main)
    set_target_properties(${folder}_test PROPERTIES CELLAR_IS_TEST ON)
    gtest_discover_tests(${folder}_test
        TEST_PREFIX "${folder}."
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        DISCOVERY_MODE PRE_TEST
        DISCOVERY_TIMEOUT 60
        PROPERTIES LABELS ${folder} TIMEOUT 300)
endfunction()

foreach(room base cells memory attention state gguf text model engine cli)
    cellar_test(${room} ${room})
endforeach()
cellar_test(ggml memory)
cellar_test(regressions engine)

if(TARGET cellar)
    file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cli/*_test.py")
    foreach(script ${scripts})
        get_filename_component(name "${script}" NAME_WE)
        add_test(NAME cli.${name}
            COMMAND "${Python3_EXECUTABLE}" "${script}"
            WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(cli.${name} PROPERTIES LABELS cli TIMEOUT 300 ENVIRONMENT
            "CELLAR_BIN=$<TARGET_FILE:cellar>;CELLAR_MODELS=${PROJECT_SOURCE_DIR}/models;CELLAR_TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data")
    endforeach()
endif()

# A consumer's build over an installed ggml: ours, installed, unless it is full of sanitizers.
if(TARGET ggml-cpu AND NOT CELLAR_SANITIZE)
    add_test(NAME install.consumer
        COMMAND "${PROJECT_SOURCE_DIR}/tests/install/run.sh"
            "${PROJECT_BINARY_DIR}" "${PROJECT_BINARY_DIR}/install_test")
    set_tests_properties(install.consumer PROPERTIES LABELS install TIMEOUT 600
        ENVIRONMENT "CELLAR_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# Examples are built with the tests, so that they go on compiling: examples/<name>.cpp is bin/<name>.
file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
foreach(source ${examples})
    get_filename_component(name "${source}" NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE cellar_engine cellar_flags)
endforeach()
