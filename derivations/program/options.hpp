// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "derivations/core/transcript.hpp"

namespace delta {

/// Wrong usage: one line, exit status 2.
struct DeriveUsage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct DeriveOptions {
  std::vector<std::string> names;  ///< empty: all
  std::vector<std::string> sizes;  ///< "C=8"
  Setup setup;
  bool step = false, code = false, json = false, markdown = false, all = false, coverage = false;
};

/// Each returns the exit status: 0 every claim holds, 1 one does not.
int derive(const DeriveOptions&);
int coverage(const DeriveOptions&);

}  // namespace delta
