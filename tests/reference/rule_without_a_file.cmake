include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/rules.cmake)
delta_add_rule(delta)
delta_add_rule(not_there)
