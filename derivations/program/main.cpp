// SPDX-License-Identifier: Apache-2.0
// The program `deltaref-derive`: reads the command line, and nothing else.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "options.hpp"

int main(int argc, char** argv) {
  const char* run = std::getenv("DELTAREF_CALLED_AS");  // ./run says how it was called
  const std::string name = run && *run ? std::string(run) + " derive" : "deltaref-derive";
  CLI::App app{
      "Derivations as programs: each claim with the line that computes it, checked in exact "
      "arithmetic.",
      name};
  app.set_version_flag("--version", "deltaref-derive " DELTAREF_VERSION);
  delta::DeriveOptions o;
  app.add_option(
      "NAME", o.names,
      "which derivation to walk, or the id of a formula: those that claim it; none: list them");
  app.add_option("--size", o.sizes, "another size, as in --size C=8 --size d_k=4");
  app.add_option("--seed", o.setup.seed, "seed of the numbers")
      ->check([](const std::string& s) {  // CLI11 takes -1 for 2^64 - 1
        std::uint64_t n = 0;
        const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
        return error == std::errc() && end == s.data() + s.size()
                   ? std::string()
                   : "expected a whole number from 0 to 2^64 - 1, got " + s;
      })
      ->capture_default_str();
  app.add_option("--scalar", o.setup.scalar, "rational or gf61; otherwise both");
  app.add_flag("--step", o.step, "wait for Enter at each claim");
  app.add_flag("--code", o.code, "also print the calls that check");
  app.add_flag("--all", o.all, "run every derivation, print one line each");
  app.add_flag("--json", o.json, "one JSON document on standard output");
  app.add_flag("--markdown", o.markdown, "the walk as a page");
  app.add_option("--pages", o.pages, "write every walk as a page into this folder");
  app.add_flag("--coverage", o.coverage,
               "every formula and where it is claimed; fails if one is not");
  try {
    app.parse(argc, argv);
    const int status = o.coverage ? delta::coverage(o) : delta::derive(o);
    if (std::cout.flush() && std::fflush(stdout) == 0) return status;
    std::cerr << "deltaref-derive: cannot write the output; is the disk full?\n";
    return 2;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    std::cerr << "deltaref-derive: " << e.what() << "; try " << name << " --help\n";
    return 2;
  } catch (const std::invalid_argument& e) {
    std::cerr << "deltaref-derive: " << e.what() << '\n';
    return 2;
  }
}
