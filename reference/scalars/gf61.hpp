// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <cstdlib>
#include <ostream>

#include "scalar.hpp"

namespace delta {

/// The prime field of p = 2^61 - 1 elements: exact arithmetic at the speed of machine words.
/// A polynomial identity of degree D that is false holds at a uniformly random point with probability at most D/p
/// (Schwartz, Zippel), so one equality here is a proof with a stated chance of error.
class GF61 {
 public:
  static constexpr std::uint64_t p = (std::uint64_t{1} << 61) - 1;

  constexpr GF61() = default;
  constexpr GF61(int n) : r_(n < 0 ? p - std::uint64_t(-std::int64_t{n}) : std::uint64_t(n)) {}
  static constexpr GF61 from_residue(std::uint64_t r) {
    GF61 x;
    x.r_ = r % p;
    return x;
  }
  constexpr std::uint64_t residue() const { return r_; }

  friend constexpr GF61 operator+(GF61 a, GF61 b) { return reduced(a.r_ + b.r_); }
  friend constexpr GF61 operator-(GF61 a, GF61 b) { return reduced(a.r_ + p - b.r_); }
  friend constexpr GF61 operator-(GF61 a) { return reduced(p - a.r_); }
  friend constexpr GF61 operator*(GF61 a, GF61 b) {
    const Wide n = static_cast<Wide>(a.r_) * b.r_;
    return reduced(static_cast<std::uint64_t>(n & p) + static_cast<std::uint64_t>(n >> 61));  // 2^61 = 1 mod p
  }
  /// \pre b != 0 (0 has no inverse; the result is then 0)
  friend constexpr GF61 operator/(GF61 a, GF61 b) { return a * b.power(p - 2); }
  friend constexpr bool operator==(GF61 a, GF61 b) = default;

  constexpr GF61& operator+=(GF61 b) { return *this = *this + b; }
  constexpr GF61& operator-=(GF61 b) { return *this = *this - b; }
  constexpr GF61& operator*=(GF61 b) { return *this = *this * b; }
  constexpr GF61& operator/=(GF61 b) { return *this = *this / b; }

  constexpr GF61 power(std::uint64_t n) const {
    GF61 result(1), square = *this;
    for (; n; n >>= 1, square *= square)
      if (n & 1) result *= square;
    return result;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static constexpr GF61 reduced(std::uint64_t r) {  // r < 2p
    GF61 x;
    x.r_ = r >= p ? r - p : r;
    return x;
  }
  std::uint64_t r_ = 0;  // 0 <= r_ < p
};

inline std::ostream& operator<<(std::ostream& out, GF61 x) { return out << x.residue(); }

template <> struct Scalar<GF61> {
  static constexpr std::string_view name = "gf61";
  static constexpr bool exact = true;
  /// The image of a double, which is an integer times a power of two: exact, since 2 has an inverse.
  /// \pre x is finite
  static GF61 from(double x) {
    int exponent;
    const auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &exponent), 53));  // |mantissa| < 2^53
    const GF61 magnitude = GF61::from_residue(static_cast<std::uint64_t>(std::abs(mantissa)));
    const int shift = ((exponent - 53) % 61 + 61) % 61;  // 2^61 = 1
    const GF61 y = magnitude * GF61::from_residue(std::uint64_t{1} << shift);
    return mantissa < 0 ? -y : y;
  }
};

}  // namespace delta
