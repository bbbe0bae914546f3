// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

namespace delta {

enum class Verdict { passed, marginal, failed, untrusted, skipped };

constexpr std::string_view name(Verdict v) {
  constexpr std::string_view names[] = {"passed", "marginal", "failed", "untrusted", "skipped"};
  return names[static_cast<int>(v)];
}

/// A named ratio: the error of a result over the error that correct code makes. One threshold then serves all sizes,
/// precisions and forms.
struct Ratio {
  std::string_view id, formula, meaning;
};

inline constexpr Ratio kOutput{"R1", "max_t |o_t - o*_t|_2 / (E max_t |o*_t|_2)", "output against the exact one"};
inline constexpr Ratio kResidual{"R2", "|(I+L)Z - B|_max / (u R (|I+L|_inf |Z|_max + |B|_max))",
                                 "residual of the triangular solve, no reference needed"};
inline constexpr Ratio kState{"R3", "|S_T - S*_T|_F / (E_S |S*_T|_F)", "final state against the exact one"};
inline constexpr Ratio kRatios[] = {kOutput, kResidual, kState};

inline constexpr double kMarginal = 1.5, kFailed = 2;

/// Errors that large no longer grow in proportion to u: where correct code of a precision makes them, it has no digit
/// left to show, and the inputs are to blame.
inline constexpr double kIllPosed = 0.1;

/// Written so that NaN fails.
constexpr Verdict judge(double ratio) {
  return ratio < kMarginal ? Verdict::passed : ratio < kFailed ? Verdict::marginal : Verdict::failed;
}

}  // namespace delta
