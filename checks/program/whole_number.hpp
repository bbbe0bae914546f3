// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <charconv>
#include <cstdint>
#include <string>

namespace delta {

/// What CLI11 asks of a seed, which by itself takes -1 for 2^64 - 1: empty, or what is wrong with it.
inline std::string whole_number(const std::string& s) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  return error == std::errc() && end == s.data() + s.size() ? ""
                                                            : "expected a whole number from 0 to 2^64 - 1, got " + s;
}

}  // namespace delta
