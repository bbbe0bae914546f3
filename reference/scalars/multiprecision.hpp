// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/eigen.hpp>

#include "scalar.hpp"

namespace delta {

/// Fifty decimal digits (168 bits), correctly rounded: the reference of record where a rounded result is judged.
using Mp50 = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>, boost::multiprecision::et_off>;

template <> struct Scalar<Mp50> {
  static constexpr std::string_view name = "mp50";
  static constexpr bool exact = false;
  static constexpr double unit = 0x1p-168;
  static Mp50 from(double x) { return Mp50(x); }
  static double to_double(const Mp50& x) { return x.convert_to<double>(); }
};

}  // namespace delta
