// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "reference/core/problem.hpp"

namespace delta {

/// The sizes of one case: a problem and the chunk length that its chunked forms use.
struct Size {
  Shape shape;
  Index C = 8;

  Size(Shape s, Index chunk = 8) : shape(std::move(s)), C(chunk) {}

  /// As printed in the table and taken by `--shape`: B1_T21_H1_HV2_K6_V4_N3_C8, packed ones with _packed0.5.5.21.
  std::string text() const { return shape.text() + "_C" + std::to_string(C); }

  /// Reads what `text` prints; fields may come in any order, and those left out are 1 (C: 8).
  /// \throws std::invalid_argument that says what is wrong with it
  static Size parse(std::string_view text);
};

/// One row of the sweep: sizes at which kernels are known to break, and why.
struct SweepRow {
  std::string_view size;
  std::string_view why;
  bool large = false;  ///< too large for rationals and wide floating point
};

/// The size every case runs at, the small one of `--quick`, the lengths and heads of the sweep, and one chunk of the
/// size that kernels use (over the prime field).
inline constexpr std::string_view kBaseSize = "B1_T21_H1_HV2_K6_V4_N3_C8", kQuickSize = "B1_T11_H1_HV2_K4_V3_N2_C4",
                                  kRealSize = "B1_T65_H1_HV1_K64_V64_N2_C64";
std::span<const SweepRow> sweep();

}  // namespace delta
