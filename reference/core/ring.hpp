// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <concepts>

namespace delta {

/// What every rule and every form asks of its scalar: + - * and ==. No order, no division, no rounding.
/// Whatever compiles for a Ring can be proved over a prime field or the rationals with `==`.
template <class T>
concept Ring = std::regular<T> && std::constructible_from<T, int> && requires(const T a, const T b, T c) {
  { T(a + b) } -> std::same_as<T>;
  { T(a - b) } -> std::same_as<T>;
  { T(a * b) } -> std::same_as<T>;
  { T(-a) } -> std::same_as<T>;
  c += a;
  c -= a;
  c *= a;
};

/// A Ring with division: strengths such as 1/|k|^2 need it, no rule and no form does.
template <class T>
concept Field = Ring<T> && requires(const T a, const T b) {
  { T(a / b) } -> std::same_as<T>;
};

/// A Field with an order: errors, norms and bounds live here.
template <class T>
concept Real = Field<T> && requires(const T a, const T b) {
  { a < b } -> std::convertible_to<bool>;
};

}  // namespace delta
