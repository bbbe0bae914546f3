// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <span>

#include "checks/core/families.hpp"
#include "checks/core/registry.hpp"

namespace delta {

/// What a law is tried on.
struct LawCase {
  const Rule& rule;
  std::string_view form;
  const Family& family;
  Size size;
  std::uint64_t seed;
};

/// What came out: nullopt where the law says nothing about this rule and form, 0 if it holds exactly, infinity if it
/// does not; a law that is an inequality or a bound gives its ratio.
using LawOutcome = std::optional<double>;
using LawCheck = LawOutcome (*)(const LawCase&);

/// A property that needs no second implementation, and so cannot share its mistake. Algebraic laws hold over a prime
/// field, where every number is drawn at random; laws about which number depends on which hold bit for bit in every
/// scalar.
struct Law {
  std::string_view name;
  std::string_view statement;
  std::span<const std::pair<std::string_view, LawCheck>> checks;  ///< scalar and check
  bool bound = false;                                             ///< gives a ratio, in its own scalar
};

std::span<const Law> laws();
const Law* find_law(std::string_view name);

}  // namespace delta
