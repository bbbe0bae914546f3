cmake_minimum_required(VERSION 3.25)
# cmake -DROOT=... -DOUT=... -P commit.cmake: writes commit.hpp, the commit that is being built, if it is known.
# Run at each build; the file changes only when the commit does.
set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${ROOT} rev-parse --show-prefix OUTPUT_VARIABLE inside RESULT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND inside STREQUAL "")  # the sources are a repository, and not a folder of somebody else's
    execute_process(COMMAND ${GIT} -C ${ROOT} describe --always --abbrev=12 --exclude=* --dirty=-modified
                    OUTPUT_VARIABLE described RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(status EQUAL 0 AND described MATCHES "^[0-9a-f]+(-modified)?$")
      set(commit ${described})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
  "// SPDX-License-Identifier: Apache-2.0\n#pragma once\ninline constexpr char kCommit[] = \"@commit@\";\n")
