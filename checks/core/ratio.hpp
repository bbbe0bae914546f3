// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>

namespace delta {

enum class Verdict { passed, marginal, failed, untrusted, skipped };

constexpr std::string_view name(Verdict v) {
  constexpr std::string_view names[] = {"passed", "marginal", "failed", "untrusted", "skipped"};
  return names[static_cast<int>(v)];
}

/// R = (error of the result) / (error that correct code of that form makes in that precision).
/// One threshold then serves all sizes, precisions and forms. Written so that NaN fails.
inline constexpr double kMarginal = 1.5, kFailed = 2;

constexpr Verdict judge(double ratio) {
  return ratio < kMarginal ? Verdict::passed : ratio < kFailed ? Verdict::marginal : Verdict::failed;
}

}  // namespace delta
