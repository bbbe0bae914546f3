// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "checks/core/errors.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

/// A known mistake that reproduces the output, or two of them.
struct Diagnosis {
  std::string id;                 ///< of two: "a + b"
  std::vector<std::string> what;  ///< the wrong line of each, as a formula
  std::string explains;           ///< which outputs: "o", "final_state" or "o and final_state"
  std::optional<Index> chunk;
  double rel_error = 0;  ///< distance of what the mistake computes from the output, Frobenius, over what it explains
  std::optional<double> factor;  ///< of a scaled output
  std::string factor_is;         ///< what that constant is, if it is a usual one: "1/sqrt(d_k)"
};

/// The known mistakes that reproduce the output to rounding where the right formula does not, best first; empty if
/// none does. A mistake that explains everything leaves no place for those that explain a part, and one mistake none
/// for two.
///
/// Two are an error of the interface (scale, layout, heads, initial state, gate space, norm) together with another one.
/// Some hundred pairs would fit a few numbers by chance, so they are asked for more: both outputs in every lane, and at
/// least `kWitnesses` independent rows which refute the right formula, and as many that refute each of the two mistakes
/// alone, by `kFailed` times what rounding explains. A sequence of T tokens has T such rows in o and at most T in its
/// state.
/// \param error, expected  of each lane, as the verdict has them
std::vector<Diagnosis> diagnose(const Subject& subject, const std::vector<Errors>& error,
                                const std::vector<Errors>& expected, int threads);

inline constexpr Index kWitnesses = 8;

}  // namespace delta
