// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rationals: GMP's when it is there (DELTAREF_GMP), else Boost's own, slower by a factor of two and the same
// numbers.
#ifdef DELTAREF_GMP
#include <boost/multiprecision/gmp.hpp>
#else
#include <boost/multiprecision/cpp_int.hpp>
#endif
#include <boost/multiprecision/eigen.hpp>

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
  static double to_double(const Rational& x) { return x.convert_to<double>(); }
};

}  // namespace delta
