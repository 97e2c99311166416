# How berth's targets are made. One function a kind of target; nothing else sets flags.

set(BERTH_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wcast-align -Wunused -Woverloaded-virtual
                   -Wconversion -Wno-sign-conversion -Wimplicit-fallthrough)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND BERTH_WARNINGS -Wno-restrict)  # false alarms for std::string's operator+ when optimising (GCC bug 105651)
endif()

# Settings that all of berth's own code shares.
function(berth_settings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${BERTH_WARNINGS}>)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE BERTH_VERSION="${PROJECT_VERSION}")
endfunction()

# Host code: commands, daemon, tests. `berth_host(target)`
function(berth_host target)
  berth_settings(${target})
  if(BERTH_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BERTH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${BERTH_SANITIZE})
    if(BERTH_SANITIZE STREQUAL "thread")  # it does not know fences; asio's are there beside its locks
      target_compile_definitions(${target} PRIVATE ASIO_DISABLE_FENCED_BLOCK)
    endif()
  endif()
endfunction()

# A host library, a static one: `berth_library(name sources...)`; its unit tests stand beside it as x_test.cpp.
function(berth_library name)
  add_library(berth_${name} STATIC ${ARGN})
  berth_host(berth_${name})
endfunction()

# Unit tests beside their code: `berth_unit_test(name LINK libs... SOURCES x_test.cpp ...)`, label "unit".
function(berth_unit_test name)
  if(NOT BERTH_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "LINK;SOURCES" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  berth_host(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME unit.${name} COMMAND ${name})
  set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 120)
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)  # what the sanitizer presets build
  endif()
  add_dependencies(unit_tests ${name})
endfunction()
