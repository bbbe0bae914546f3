# cmake -DPROGRAM=deltaref-derive -P check.cmake: an erratum that no check rejects stops the build.
execute_process(COMMAND ${PROGRAM} errata --json RESULT_VARIABLE status OUTPUT_VARIABLE json ERROR_VARIABLE json)
if(NOT status EQUAL 0)
  string(REGEX MATCHALL "\"statement\": \"[^\n]*\",[^}]*\"fails\"" failed "${json}")
  string(REGEX REPLACE "\",[^;]*" "\"" failed "${failed}")
  message(FATAL_ERROR "an erratum is not rejected (derivations/errata.cpp): ${failed}\nthe whole: ${PROGRAM} errata")
endif()
