# find_package(deltaref) after `cmake --install`: the headers and one header-only target, deltaref::deltaref.
include(CMakePackageConfigHelpers)
set(package_dir lib/cmake/deltaref)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/reference/ DESTINATION include/deltaref COMPONENT deltaref
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.inl")
install(TARGETS deltaref EXPORT deltaref COMPONENT deltaref)
install(EXPORT deltaref NAMESPACE deltaref:: FILE deltaref-targets.cmake DESTINATION ${package_dir} COMPONENT deltaref)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/deltaref-config.cmake.in ${PROJECT_BINARY_DIR}/deltaref-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/deltaref-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/deltaref-config.cmake ${PROJECT_BINARY_DIR}/deltaref-config-version.cmake
        DESTINATION ${package_dir} COMPONENT deltaref)
