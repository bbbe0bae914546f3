// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Core>
#include <algorithm>

namespace delta {

/// A double that counts: every product and every sum is one operation. Run through a form it
/// tells what the form costs, with nobody's formula in between. Each value also knows the longest
/// chain of products behind it that have to wait for each other.
struct Counted {
  double value = 0;
  long depth = 0;
  static inline long products = 0, sums = 0;
  static void reset() { products = sums = 0; }

  Counted() = default;
  Counted(int n) : value(n) {}
  explicit Counted(double x) : value(x) {}

  friend Counted operator+(Counted a, Counted b) {
    return ++sums, Counted(a.value + b.value, std::max(a.depth, b.depth));
  }
  friend Counted operator-(Counted a, Counted b) {
    return ++sums, Counted(a.value - b.value, std::max(a.depth, b.depth));
  }
  friend Counted operator-(Counted a) { return Counted(-a.value, a.depth); }
  friend Counted operator*(Counted a, Counted b) {
    return ++products, Counted(a.value * b.value, std::max(a.depth, b.depth) + 1);
  }
  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator-=(Counted b) { return *this = *this - b; }
  Counted& operator*=(Counted b) { return *this = *this * b; }
  friend bool operator==(Counted a, Counted b) { return a.value == b.value; }

 private:
  Counted(double x, long chain) : value(x), depth(chain) {}
};

}  // namespace delta

template <> struct Eigen::NumTraits<delta::Counted> : Eigen::GenericNumTraits<delta::Counted> {
  using Real = delta::Counted;
  using NonInteger = delta::Counted;
  using Nested = delta::Counted;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 1,
    AddCost = 3,
    MulCost = 3
  };
};
