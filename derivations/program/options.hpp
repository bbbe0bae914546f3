// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "derivations/core/transcript.hpp"

namespace delta {

/// Wrong usage: one line, exit status 2.
struct DeriveUsage : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct DeriveOptions {
  std::vector<std::string> names;  ///< empty: all
  std::vector<std::string> sizes;  ///< "C=8"
  std::string pages;               ///< a folder for one page a derivation
  Setup setup;
  bool step = false, code = false, json = false, markdown = false, all = false, coverage = false;
};

/// Each returns the exit status: 0 every claim holds, 1 one does not.
int derive(const DeriveOptions&);
int coverage(const DeriveOptions&);

}  // namespace delta
