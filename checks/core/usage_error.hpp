// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <stdexcept>
#include <string>

namespace delta {

/// Wrong input or wrong usage: one line that says what, where, expected, got and what to try. The program prints it
/// and exits with status 2. Names that come out of a file cannot break the line: control characters are replaced.
struct UsageError : std::runtime_error {
  explicit UsageError(std::string message) : std::runtime_error(printable(std::move(message))) {}

 private:
  static std::string printable(std::string s) {
    for (char& c : s)
      if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    return s;
  }
};

}  // namespace delta
