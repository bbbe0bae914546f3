// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <ostream>
#include <utility>

#include "scalar.hpp"

namespace delta {

/// A number and its derivative: a + a' eps with eps^2 = 0, over any ring. Run through the same template as the
/// value, it differentiates every rule and every form, and over an exact ring the derivative is exact.
template <Ring T> struct Dual {
  T value = T(0), tangent = T(0);

  Dual() = default;
  Dual(int n) : value(n) {}
  Dual(T v) : value(std::move(v)) {}
  Dual(T v, T t) : value(std::move(v)), tangent(std::move(t)) {}

  friend Dual operator+(const Dual& a, const Dual& b) { return {T(a.value + b.value), T(a.tangent + b.tangent)}; }
  friend Dual operator-(const Dual& a, const Dual& b) { return {T(a.value - b.value), T(a.tangent - b.tangent)}; }
  friend Dual operator-(const Dual& a) { return {T(-a.value), T(-a.tangent)}; }
  friend Dual operator*(const Dual& a, const Dual& b) {
    return {T(a.value * b.value), T(a.value * b.tangent + a.tangent * b.value)};
  }
  friend Dual operator/(const Dual& a, const Dual& b) requires Field<T> {
    const T q = a.value / b.value;
    return {q, T((a.tangent - q * b.tangent) / b.value)};
  }
  friend bool operator==(const Dual& a, const Dual& b) = default;

  Dual& operator+=(const Dual& b) { return *this = *this + b; }
  Dual& operator-=(const Dual& b) { return *this = *this - b; }
  Dual& operator*=(const Dual& b) { return *this = *this * b; }
};

template <Ring T> std::ostream& operator<<(std::ostream& out, const Dual<T>& x) {
  return out << x.value << " + " << x.tangent << " eps";
}

template <class T> struct Scalar<Dual<T>> {
  static constexpr std::string_view name = "dual";
  static constexpr bool exact = Scalar<T>::exact;
  static Dual<T> from(double x) { return Dual<T>(Scalar<T>::from(x)); }
};

}  // namespace delta
