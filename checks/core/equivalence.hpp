// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checks/core/compare.hpp"
#include "checks/core/families.hpp"
#include "checks/core/laws.hpp"
#include "checks/core/ratio.hpp"
#include "checks/core/registry.hpp"

namespace delta {

/// One comparison of the equivalence table.
struct Row {
  std::string rule, form;
  std::string against;  ///< "paper", the formula as printed, or "law: NAME"
  std::string scalar, family, shape;
  std::string kind;  ///< "exact" or "ratio"
  double ratio = 0;  ///< worst of output and state; 0 for an exact row that holds
  Verdict verdict = Verdict::skipped;
  std::uint64_t seed = 0;
  std::string reason;  ///< why it was skipped or not trusted, or what is wrong
  std::string where;   ///< of a failure: first bad token and worst element

  bool of_law() const { return against != "paper"; }
};

/// Names of the scalars, exact ones first, in the order of the table's columns.
const std::vector<std::string>& scalar_names();
const std::vector<std::string>& form_names();

/// What to run; an empty list means all.
struct Selection {
  std::vector<std::string> rules, forms, families, scalars;
  std::vector<std::string> laws;  ///< if given, these laws and nothing else
  std::optional<Size> size;       ///< if given, this size and nothing else
  bool quick = false, full = false;
  std::uint64_t seed = 1;
};

/// Runs the table on all cores. \param report is called with each row, in an order that does not depend on timing
/// \param progress is called with the cases done and their number
void check_equivalence(const Selection& what, const std::function<void(const Row&)>& report,
                       const std::function<void(std::size_t, std::size_t)>& progress = nullptr);

/// A bound on the chance that a wrong formula passes one comparison at a random point of GF(2^61 - 1).
double schwartz_zippel(const Size& size);

}  // namespace delta
