# delta_add_rule(id): reference/rules/id.hpp is compiled for every scalar, and is thereby in every form, check,
# command, test and page.
function(delta_add_rule rule)
  cmake_path(SET file NORMALIZE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../reference/rules/${rule}.hpp)
  set(text "")
  if(EXISTS ${file})
    file(READ ${file} text)
  endif()
  if(NOT text MATCHES "struct ${rule}[ \n{]")
    message(FATAL_ERROR "delta_add_rule(${rule}): expected 'struct ${rule}' in reference/rules/${rule}.hpp")
  endif()
  set_property(GLOBAL APPEND PROPERTY DELTA_RULES ${rule})
endfunction()
