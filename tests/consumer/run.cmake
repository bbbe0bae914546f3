# cmake -DBUILD=<the project's build> -DGENERATOR=<its generator> -P run.cmake
# Installs into a fresh prefix, then configures, builds and runs the consumer against it.
set(consumer ${BUILD}/consumer)
file(REMOVE_RECURSE ${consumer})
set(COMMAND_ECHO COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${consumer}/prefix --component deltaref ${COMMAND_ECHO})
file(GLOB_RECURSE headers ${consumer}/prefix/include/*)
foreach(header IN LISTS headers)
  file(STRINGS ${header} stray REGEX "#include \"(reference|checks)/")
  if(stray)
    message(FATAL_ERROR "${header}: ${stray} is found inside the project only; write the path relative to the header")
  endif()
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${consumer}/build -G ${GENERATOR}
                        -DCMAKE_PREFIX_PATH=${consumer}/prefix ${COMMAND_ECHO})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${consumer}/build ${COMMAND_ECHO})
execute_process(COMMAND ${consumer}/build/consumer ${COMMAND_ECHO})
