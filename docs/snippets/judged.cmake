# Runs SNIPPET, which writes wrong_kernel.safetensors, lets PROGRAM judge it, and compares what that prints with WANT.
execute_process(COMMAND ${SNIPPET} wrong_kernel.safetensors COMMAND_ERROR_IS_FATAL ANY)
set(ENV{COLUMNS} 120)
execute_process(COMMAND ${PROGRAM} verify wrong_kernel.safetensors OUTPUT_VARIABLE got RESULT_VARIABLE status)
file(READ ${WANT} want)
if(NOT status EQUAL 1 OR NOT got STREQUAL want)
  message(FATAL_ERROR "verify ended with ${status} and printed\n${got}\ninstead of ${WANT}:\n${want}")
endif()
