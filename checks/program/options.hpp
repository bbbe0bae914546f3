// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>

#include "checks/core/equivalence.hpp"

namespace delta {

/// Wrong input or wrong usage: one line that says what, where, expected, got and what to try. The program prints it
/// and exits with status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CheckOptions {
  Selection selection;
  std::string shape;  ///< as the table prints it
  bool json = false, list = false;
};

struct RulesOptions {
  bool json = false;
};

/// Each command returns its exit status: 0 all passed, 1 something failed. Wrong input throws UsageError.
int check_command(const CheckOptions&);
int rules_command(const RulesOptions&);

}  // namespace delta
