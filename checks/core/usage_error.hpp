// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>

#include "checks/core/printable.hpp"

namespace delta {

/// Wrong input or wrong usage: one line that says what, where, expected, got and what to try. The program prints it
/// and exits with status 2. Names that come out of a file cannot break the line, or drive the terminal.
struct UsageError : std::runtime_error {
  explicit UsageError(const std::string& message) : std::runtime_error(printable(message)) {}
};

}  // namespace delta
