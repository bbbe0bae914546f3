// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Core>
#include <cmath>
#include <compare>
#include <ostream>

#include "scalar.hpp"

namespace delta {

/// An unevaluated sum hi + lo of two doubles, |lo| <= ulp(hi)/2: about 106 bits at some thirty times a double's cost.
/// With u = 2^-53 the relative error is at most 3 u^2 / (1 - 4u) of a sum or a difference, however much cancels, and
/// 5 u^2 of a product (Joldes, Muller, Popescu 2017; Muller, Rideau 2022). Quotients and roots stay within 5 u^2 in the
/// tests. Overflow gives NaN; products below 2^-969 lose bits.
/// \pre no fused contraction by the compiler (-ffp-contract=off)
struct DoubleDouble {
  double hi = 0, lo = 0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(int n) : hi(n) {}
  constexpr DoubleDouble(double x) : hi(x) {}
  constexpr DoubleDouble(double h, double l) : hi(h), lo(l) {}

  /// a + b exactly, for any a and b (Knuth)
  static DoubleDouble two_sum(double a, double b) {
    const double s = a + b, t = s - a;
    return {s, (a - (s - t)) + (b - t)};
  }
  /// a + b exactly, for |a| >= |b|
  static DoubleDouble fast_two_sum(double a, double b) {
    const double s = a + b;
    return {s, b - (s - a)};
  }
  /// a b exactly
  static DoubleDouble two_product(double a, double b) {
    const double p = a * b;
    return {p, std::fma(a, b, -p)};
  }

  friend DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble s = two_sum(a.hi, b.hi), t = two_sum(a.lo, b.lo);
    const DoubleDouble v = fast_two_sum(s.hi, s.lo + t.hi);
    return fast_two_sum(v.hi, v.lo + t.lo);
  }
  friend DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }
  friend DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + (-b); }
  friend DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble p = two_product(a.hi, b.hi);
    return fast_two_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
  }
  friend DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
    const double q = a.hi / b.hi;
    const DoubleDouble r = a - b * DoubleDouble(q);
    return fast_two_sum(q, r.hi / b.hi) + DoubleDouble((r - b * DoubleDouble(r.hi / b.hi)).hi / b.hi);
  }
  DoubleDouble& operator+=(DoubleDouble b) { return *this = *this + b; }
  DoubleDouble& operator-=(DoubleDouble b) { return *this = *this - b; }
  DoubleDouble& operator*=(DoubleDouble b) { return *this = *this * b; }
  DoubleDouble& operator/=(DoubleDouble b) { return *this = *this / b; }

  friend bool operator==(DoubleDouble a, DoubleDouble b) = default;
  friend std::partial_ordering operator<=>(DoubleDouble a, DoubleDouble b) {
    return a.hi != b.hi ? a.hi <=> b.hi : a.lo <=> b.lo;
  }
  friend DoubleDouble abs(DoubleDouble a) { return a.hi < 0 ? -a : a; }
  friend DoubleDouble sqrt(DoubleDouble a) {
    if (!(a.hi > 0)) return {std::sqrt(a.hi)};
    const double s = std::sqrt(a.hi);  // one Newton step in double-double doubles its digits
    return DoubleDouble(s) + (a - two_product(s, s)) / DoubleDouble(2 * s);
  }
};

inline std::ostream& operator<<(std::ostream& out, DoubleDouble x) { return out << x.hi << " + " << x.lo; }

template <> struct Scalar<DoubleDouble> {
  static constexpr std::string_view name = "dd";
  static constexpr bool exact = false;
  static constexpr double unit = 5 * 0x1p-106;  // of the worst operation, a product
  static DoubleDouble from(double x) { return x; }
  static double to_double(DoubleDouble x) { return x.hi + x.lo; }
};

}  // namespace delta

template <> struct Eigen::NumTraits<delta::DoubleDouble> : Eigen::GenericNumTraits<delta::DoubleDouble> {
  enum { IsSigned = 1 };  // else Eigen takes every number for its own absolute value
};
