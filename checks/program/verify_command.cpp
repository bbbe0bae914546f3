// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "checks/core/parallel_for.hpp"
#include "checks/program/options.hpp"
#include "checks/report/verify_report.hpp"
#include "checks/verify/prove.hpp"

namespace delta {
namespace {

/// The options that change a verdict, as they were given.
std::string options_of(const VerifyOptions& o) {
  std::string s;
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) s += std::string(" ") + name + " " + shell_word(value);
  };
  add("--rule", o.dump.rule), add("--scale", o.dump.scale), add("--state-layout", o.dump.state_layout);
  return s + (o.strict ? " --strict" : "") + (o.prove ? " --prove" : "") + (o.analyse ? " --analyse" : "");
}

}  // namespace

int verify_command(const VerifyOptions& options) {
  if (options.prove) require_balls();
  for (const std::string& file : options.files) {
    std::error_code none;
    if (std::filesystem::equivalent(file, options.html, none))
      throw UsageError("--html " + options.html + ": is one of the dumps; expected another file to write to");
  }
  if (!options.html.empty()) require_writable(options.html);
  int status = 0;
  std::vector<FileVerdict> all;
  const Terminal terminal = Terminal::standard_output();
  for (const std::string& file : options.files) {
    FileVerdict v = verify_file(file, options.dump, cores());
    if (options.prove) prove_errors(v, options.dump, cores());
    if (options.analyse && !v.unreadable) v.analysis = analyse(read_dump(file, has_meaning), options.dump, cores());
    if (v.unreadable) {
      std::cerr << "deltaref: " << v.reason << '\n';
      status = 2;
    } else {
      if (!options.json) std::cout << (all.empty() ? "" : "\n") << verify_text(v, terminal) << std::flush;
      const bool bad = v.verdict == Verdict::failed || v.verdict == Verdict::untrusted ||
                       (options.strict && v.verdict != Verdict::passed);
      status = std::max(status, bad ? 1 : 0);
    }
    all.push_back(v);
  }
  if (options.json)
    std::cout << verify_json(all) << '\n';
  else if (all.size() > 1)
    std::cout << '\n' << verify_summary(all, terminal);
  if (!options.html.empty()) write_file(options.html, verify_html(all, environment(), options_of(options)));
  return status;
}

}  // namespace delta
