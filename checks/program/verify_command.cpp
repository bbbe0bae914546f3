// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include "checks/core/parallel_for.hpp"
#include "checks/program/options.hpp"
#include "checks/verify/verify.hpp"

namespace delta {

int verify_command(const VerifyOptions& options) {
  int status = 0;
  std::vector<FileVerdict> all;
  for (const std::string& file : options.files) {
    const FileVerdict v = verify_file(file, options.dump, cores());
    if (v.unreadable) {
      std::cerr << "deltaref: " << v.reason << '\n';
      status = 2;
    } else {
      if (!options.json) std::cout << (all.empty() ? "" : "\n") << report_text(v) << std::flush;
      const bool bad = v.verdict == Verdict::failed || v.verdict == Verdict::untrusted ||
                       (options.strict && v.verdict != Verdict::passed);
      status = std::max(status, bad ? 1 : 0);
    }
    all.push_back(v);
  }
  if (options.json) std::cout << report_json(all) << '\n';
  return status;
}

}  // namespace delta
