// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <string_view>
#include <type_traits>

#include "../core/ring.hpp"

namespace delta {

/// What a scalar says about itself. Each file of this folder specialises it for its own type.
///   name        as on the command line
///   exact       true: `==` decides; false: `unit` is the unit roundoff u and errors are judged by ratios
///   from(x)     the scalar nearest to the double x; in an exact scalar and in those wider than double, x itself
///   to_double   the nearest double, where there is one
template <class T> struct Scalar;

/// Whether every value of the scalar is a double.
template <class T> inline constexpr bool fits_in_double = std::is_floating_point_v<T>;

template <> struct Scalar<double> {
  static constexpr std::string_view name = "double";
  static constexpr bool exact = false;
  static constexpr double unit = 0x1p-53;
  static double from(double x) { return x; }
  static double to_double(double x) { return x; }
};

template <> struct Scalar<float> {
  static constexpr std::string_view name = "float";
  static constexpr bool exact = false;
  static constexpr double unit = 0x1p-24;
  static float from(double x) { return static_cast<float>(x); }
  static double to_double(float x) { return x; }
};

}  // namespace delta
