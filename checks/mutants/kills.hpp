// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace delta {

/// What of the checks tells one mutant from the right formula. Mutants run as forms, by the same road as the right
/// ones.
struct Kills {
  std::string mutant;              ///< its name as a form
  std::string what;                ///< the wrong line
  std::vector<std::string> gates;  ///< at each of `kGateStrengths`: the narrowest precision in which a
                                   ///< comparison fails, "exact" if only equality does, empty if none
  std::vector<std::string> laws;   ///< those that it breaks
  int failed = 0, decided = 0;     ///< comparisons of the default suite of one rule, its laws among them
};

/// A strength of the gate and the family of inputs that has it.
struct GateStrength {
  std::string_view name, family;
};
inline constexpr GateStrength kGateStrengths[] = {{"no gate", "gate_one"},
                                                  {"weak", "gate_weak"},
                                                  {"typical", "gate_half"},
                                                  {"strong", "gate_strong"},
                                                  {"resets", "alpha_zero"}};

/// Every mutant against every check. The rule is one in which each of them is a mistake; the size of the ladder of
/// gates has what they need to show: grouped heads, packed sequences, more than one chunk, d_k = d_v.
std::vector<Kills> kills(std::uint64_t seed = 1);

/// The table as a page in Markdown.
std::string kills_page(const std::vector<Kills>& all);

}  // namespace delta
