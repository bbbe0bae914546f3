# What the target `docs` does, in order.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${SITE} ${PAGES})
file(MAKE_DIRECTORY ${SITE})
run(${DOCS_PAGES} ${ROOT} ${PAGES}/docs)
run(${DERIVE} --pages ${PAGES}/docs)
run(${PROGRAM} check --mutants OUTPUT_FILE ${PAGES}/docs/mutants.md)

# Doxygen's own header with the switch between light and dark.
run(${DOXYGEN} -w html ${PAGES}/header.html ${PAGES}/footer.html ${PAGES}/style.css)
file(READ ${PAGES}/header.html header)
string(REPLACE "</head>" "<script type=\"text/javascript\" src=\"$relpath^doxygen-awesome-darkmode-toggle.js\"></script>
<script type=\"text/javascript\">DoxygenAwesomeDarkModeToggle.init()</script>
</head>" header "${header}")
file(WRITE ${PAGES}/header.html "${header}")
run(${DOXYGEN} ${DOXYFILE})

# The part of MathJax that the site uses, 2 MB of 54, so that the site is whole and works offline.
foreach(part
    MathJax.js extensions/TeX extensions/tex2jax.js extensions/MathEvents.js extensions/MathMenu.js
    extensions/MathZoom.js extensions/AssistiveMML.js jax/element/mml jax/input/TeX jax/output/HTML-CSS/jax.js
    jax/output/HTML-CSS/config.js jax/output/HTML-CSS/autoload jax/output/HTML-CSS/fonts/TeX fonts/HTML-CSS/TeX/woff)
  get_filename_component(folder ${SITE}/mathjax/${part} DIRECTORY)
  file(COPY ${MATHJAX}/${part} DESTINATION ${folder} FOLLOW_SYMLINK_CHAIN)
endforeach()

# Reports as they are, for the page on checking a kernel.
function(report file) # report FILE ARGUMENT...: a verdict of failed is what some of them are there to show
  execute_process(COMMAND ${CMAKE_COMMAND} -E env DELTAREF_CALLED_AS=./run ${PROGRAM} ${ARGN} --html ${SITE}/${file}
                  RESULT_VARIABLE status OUTPUT_QUIET WORKING_DIRECTORY ${PAGES})
  if(NOT status MATCHES "^[01]$")
    message(FATAL_ERROR "no ${file}: ${status}")
  endif()
endfunction()
run(${WRONG_KERNEL} ${PAGES}/wrong_kernel.safetensors)
report(report_wrong_kernel.html verify wrong_kernel.safetensors)
file(GLOB dumps ${ROOT}/tests/dumps/*.safetensors)
report(report_dumps.html verify ${dumps})
report(report_check.html check --quick)

run(perl ${CMAKE_CURRENT_LIST_DIR}/check_site.pl ${SITE})
