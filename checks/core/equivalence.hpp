// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checks/core/compare.hpp"
#include "checks/core/families.hpp"
#include "checks/core/ratio.hpp"
#include "checks/core/registry.hpp"

namespace delta {

/// One comparison of the equivalence table.
struct Row {
  std::string rule, form, against, scalar, family, shape;
  std::string kind;  ///< "exact" or "ratio"
  double ratio = 0;  ///< worst of output and state; 0 for an exact row that holds
  Verdict verdict = Verdict::skipped;
  std::uint64_t seed = 0;
  std::string reason;  ///< why it was skipped or not trusted, or what is wrong
};

/// Names of the scalars, exact ones first, in the order of the table's columns.
const std::vector<std::string>& scalar_names();
const std::vector<std::string>& form_names();

/// What to run; an empty list means all.
struct Selection {
  std::vector<std::string> rules, forms, families, scalars;
  bool quick = false, full = false;
  std::uint64_t seed = 1;
};

/// Runs the table. \param report is called with each row as it is decided
void check_equivalence(const Selection& what, const std::function<void(const Row&)>& report);

}  // namespace delta
