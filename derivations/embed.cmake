# Writes the registry: cmake -DNAMES=a,b+,c -DSOURCE=folder -DOUT=file -P embed.cmake
# Each derivation is kept as text beside its functions, because the text is the article. A + marks the scalar field too.
string(REPLACE "," ";" NAMES "${NAMES}")
set(declarations "")
set(entries "")
foreach(entry IN LISTS NAMES)
  string(REGEX REPLACE "\\+$" "" name ${entry})
  file(READ ${SOURCE}/${name}.cpp text)
  if(entry MATCHES "\\+$")
    string(REGEX MATCH "template <[A-Za-z]+ T> void ${name}\\(" head "${text}")  # over a Ring, or a Field if it divides
    if(NOT head)
      message(FATAL_ERROR "delta_add_derivation(${name}): expected 'template <Ring T> void ${name}(' in ${name}.cpp")
    endif()
    string(APPEND declarations "${head}Derivation<T>&);\n")
    set(functions "&${name}<Rational>, &${name}<Generic>")
  else()
    string(APPEND declarations "void ${name}(Derivation<Rational>&);\n")
    set(functions "&${name}, nullptr")
  endif()
  string(APPEND entries "    {\"${name}\", R\"source(${text})source\", ${functions}},\n")
endforeach()
file(READ ${SOURCE}/coverage.txt table)
file(WRITE ${OUT} "// Generated from the list in derivations/CMakeLists.txt.
#include \"derivations/core/registry.hpp\"

namespace delta {
${declarations}
std::span<const Entry> derivations() {
  static const Entry all[] = {
${entries}  };
  return all;
}

std::string_view coverage_table() { return R\"source(${table})source\"; }

}  // namespace delta
")
