// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "checks/core/errors.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// A known mistake that reproduces the output.
struct Diagnosis {
  std::string id;
  std::string explains;  ///< which outputs: "o", "final_state" or "o and final_state"
  std::optional<Index> chunk;
  double rel_error = 0;  ///< distance of what the mistake computes from the output, Frobenius, over what it explains
  std::optional<double> factor;  ///< of a scaled output
};

/// The known mistakes that reproduce the output to rounding where the right formula does not, best first; empty if
/// none does. A mistake that explains everything leaves no place for those that explain a part.
/// \param error, expected  of each lane, as the verdict has them
std::vector<Diagnosis> diagnose(const Subject& subject, const std::vector<Errors>& error,
                                const std::vector<Errors>& expected, int threads);

}  // namespace delta
