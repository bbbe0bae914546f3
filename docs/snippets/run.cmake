# Runs PROGRAM and compares what it prints with the file WANT.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE got COMMAND_ERROR_IS_FATAL ANY)
file(READ ${WANT} want)
if(NOT got STREQUAL want)
  message(FATAL_ERROR "${PROGRAM} printed\n${got}\ninstead of ${WANT}:\n${want}")
endif()
