# cellar_room(<name> [USES <rooms>...] [LINK <libraries>...])
#
# A room is a folder src/<name> and a static library cellar_<name> of all its sources but main.cpp
# (an INTERFACE library while it has none). USES names the rooms that it may include;
# tools/check_includes.py holds the code to the same table.
function(cellar_room name)
    cmake_parse_arguments(room "" "" "USES;LINK" ${ARGN})
    set(folder "${PROJECT_SOURCE_DIR}/src/${name}")
    file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
    list(REMOVE_ITEM sources "${folder}/main.cpp")
    list(TRANSFORM room_USES PREPEND cellar_)

    if(sources)
        set(scope PUBLIC)
        add_library(cellar_${name} STATIC ${sources})
        target_link_libraries(cellar_${name} PRIVATE cellar_flags)
    else()
        set(scope INTERFACE)
        add_library(cellar_${name} INTERFACE)
    endif()
    target_compile_features(cellar_${name} ${scope} cxx_std_20)
    target_include_directories(cellar_${name} ${scope} "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(cellar_${name} ${scope} ${room_USES} ${room_LINK})
endfunction()

# cellar_executable(<target> <room>): bin/<target> from the room's main.cpp, once there is one.
function(cellar_executable target room)
    file(GLOB main CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}/main.cpp")
    if(main)
        add_executable(${target} ${main})
        target_link_libraries(${target} PRIVATE cellar_${room} cellar_flags)
    endif()
endfunction()
