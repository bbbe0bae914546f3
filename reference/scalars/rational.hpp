// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rationals: GMP's when it is there (DELTAREF_GMP), else Boost's own, slower by a factor of two and the same
// numbers.
#ifdef DELTAREF_GMP
#include <boost/multiprecision/gmp.hpp>
#else
#include <boost/multiprecision/cpp_int.hpp>
#endif
#include <bit>
#include <boost/multiprecision/eigen.hpp>
#include <cstdint>

#include "scalar.hpp"

namespace delta {

#ifdef DELTAREF_GMP
using Rational = boost::multiprecision::number<boost::multiprecision::gmp_rational, boost::multiprecision::et_off>;
#else
using Rational =
    boost::multiprecision::number<boost::multiprecision::cpp_rational_backend, boost::multiprecision::et_off>;
#endif

template <> struct Scalar<Rational> {
  static constexpr std::string_view name = "rational";
  static constexpr bool exact = true;
  static Rational from(double x) { return Rational(x); }
  /// The nearest double, ties to even. (GMP's own conversion truncates.)
  static double to_double(const Rational& x) {
    const double near = x.convert_to<double>();
    const double next = std::nextafter(near, x > Rational(near) ? HUGE_VAL : -HUGE_VAL);
    const Rational error = abs(Rational(x - Rational(near))), other = abs(Rational(x - Rational(next)));
    const bool even = (std::bit_cast<std::uint64_t>(near) & 1) == 0;
    return error < other || (error == other && even) ? near : next;
  }
};

}  // namespace delta
