// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Core>
#include <algorithm>

#include "reference/scalars/gf61.hpp"

namespace delta {

/// An element of GF(2^61 - 1) that remembers how it was made: it is the value, at the numbers
/// drawn, of a rational function N / D, and the degrees of N and D are bounded here. An identity
/// between two such values that is false holds at a random point with probability at most degree
/// / p (Schwartz, Zippel), so a claim that was checked once knows its own chance of error, and
/// nobody has to count degrees by hand.
class Generic {
 public:
  Generic() = default;
  Generic(int n) : value_(n) {}
  /// A number drawn at random: a variable, of degree 1.
  static Generic variable(GF61 x) { return {x, 1, 0}; }

  GF61 value() const { return value_; }
  /// Bounds the degree of N1 D2 - N2 D1, whose vanishing is the equality of a and b.
  static double degree(const Generic& a, const Generic& b) {
    return std::max(a.num_ + b.den_, b.num_ + a.den_);
  }

  friend Generic operator+(const Generic& a, const Generic& b) {
    return {a.value_ + b.value_, std::max(a.num_ + b.den_, b.num_ + a.den_), a.den_ + b.den_};
  }
  friend Generic operator-(const Generic& a, const Generic& b) {
    return {a.value_ - b.value_, std::max(a.num_ + b.den_, b.num_ + a.den_), a.den_ + b.den_};
  }
  friend Generic operator-(const Generic& a) { return {-a.value_, a.num_, a.den_}; }
  friend Generic operator*(const Generic& a, const Generic& b) {
    return {a.value_ * b.value_, a.num_ + b.num_, a.den_ + b.den_};
  }
  friend Generic operator/(const Generic& a, const Generic& b) {
    return {a.value_ / b.value_, a.num_ + b.den_, a.den_ + b.num_};
  }
  Generic& operator+=(const Generic& b) { return *this = *this + b; }
  Generic& operator-=(const Generic& b) { return *this = *this - b; }
  Generic& operator*=(const Generic& b) { return *this = *this * b; }
  Generic& operator/=(const Generic& b) { return *this = *this / b; }
  friend bool operator==(const Generic& a, const Generic& b) { return a.value_ == b.value_; }

 private:
  Generic(GF61 x, float num, float den) : value_(x), num_(num), den_(den) {}
  GF61 value_;
  float num_ = 0, den_ = 0;  // float: a bound that grows too large becomes infinite, and says so
};

inline std::ostream& operator<<(std::ostream& out, const Generic& x) { return out << x.value(); }

template <> struct Scalar<Generic> {
  static constexpr std::string_view name = "gf61";
  static constexpr bool exact = true;
};

}  // namespace delta

template <> struct Eigen::NumTraits<delta::Generic> : Eigen::GenericNumTraits<delta::Generic> {
  using Real = delta::Generic;
  using NonInteger = delta::Generic;
  using Nested = delta::Generic;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 0,
    RequireInitialization = 1,
    ReadCost = 2,
    AddCost = 6,
    MulCost = 8
  };
};
