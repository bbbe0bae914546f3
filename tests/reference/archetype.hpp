// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "reference/core/ring.hpp"

namespace delta {

/// A scalar with nothing beyond Ring: the integers mod 2^64. It has zero divisors, so no division; no order, no abs, no
/// conversion in or out but from a written integer, no stream operator, nothing that Eigen is told of it. What compiles
/// for it asks for no more.
class Archetype {
 public:
  Archetype() = default;
  explicit Archetype(int n) : r_(static_cast<std::uint64_t>(n)) {}

  friend Archetype operator+(const Archetype& a, const Archetype& b) { return Archetype(a) += b; }
  friend Archetype operator-(const Archetype& a, const Archetype& b) { return Archetype(a) -= b; }
  friend Archetype operator*(const Archetype& a, const Archetype& b) { return Archetype(a) *= b; }
  friend Archetype operator-(const Archetype& a) { return Archetype() -= a; }
  friend bool operator==(const Archetype& a, const Archetype& b) = default;

  Archetype& operator+=(const Archetype& a) { return r_ += a.r_, *this; }
  Archetype& operator-=(const Archetype& a) { return r_ -= a.r_, *this; }
  Archetype& operator*=(const Archetype& a) { return r_ *= a.r_, *this; }

  template <class T> void operator/(const T&) const = delete;
  template <class T> void operator<(const T&) const = delete;

 private:
  std::uint64_t r_ = 0;
};

}  // namespace delta
