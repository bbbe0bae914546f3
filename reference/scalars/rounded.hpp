// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <ostream>

#include "scalar.hpp"

namespace delta {

/// A binary floating-point format: p significant bits, normal exponents emin..emax, gradual underflow below.
struct Format {
  std::string_view name;
  int p, emin, emax;
  constexpr double unit() const { return 1.0 / static_cast<double>(std::uint64_t{1} << p); }  // u = 2^-p

  /// The nearest number of the format, ties to even; beyond the largest one, infinity.
  double round(double x) const {
    const int drop = 53 - p;  // bits to lose
    if (drop == 0 || !std::isfinite(x) || x == 0) return x;
    const int exponent = std::ilogb(x);
    if (exponent < emin) {                              // subnormal: the quantum is 2^(emin - p + 1)
      const double c = std::ldexp(1.5, emin - p + 53);  // its unit in the last place is that quantum
      return std::copysign((std::abs(x) + c) - c, x);
    }
    std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    bits += (std::uint64_t{1} << (drop - 1)) - 1 + ((bits >> drop) & 1);
    bits &= ~((std::uint64_t{1} << drop) - 1);  // a carry runs into the exponent, as it should
    const double y = std::bit_cast<double>(bits);
    return std::ilogb(y) > emax ? std::copysign(std::numeric_limits<double>::infinity(), x) : y;
  }
};

inline constexpr Format kBf16{"bf16", 8, -126, 127}, kFp16{"fp16", 11, -14, 15}, kTf32{"tf32", 11, -126, 127},
    kFp32{"fp32", 24, -126, 127}, kFp64{"fp64", 53, -1022, 1023};

/// A fixed format as the policy of `Rounded`.
template <const Format& F> struct Fixed {
  static const Format& format() { return F; }
};

/// The format of the current thread, as multiprecision libraries have a default precision: one compiled scalar
/// serves every format. `Working::Scope` sets it for a block.
struct Working {
  static const Format& format() { return current(); }
  class Scope {
   public:
    explicit Scope(const Format& f) : saved_(current()) { current() = f; }
    ~Scope() { current() = saved_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Format saved_;
  };

 private:
  static Format& current() {
    thread_local Format f = kFp32;
    return f;
  }
};

/// A number of a narrow format. Each operation is done in double and rounded once; for p <= 25 that is the correctly
/// rounded result of + - * / and sqrt, since 53 >= 2p + 2 (Figueroa 1995).
template <class Policy> class Rounded {
 public:
  Rounded() = default;
  Rounded(int n) : x_(round(n)) {}
  explicit Rounded(double x) : x_(round(x)) {}
  double value() const { return x_; }

  friend Rounded operator+(Rounded a, Rounded b) { return Rounded(a.x_ + b.x_); }
  friend Rounded operator-(Rounded a, Rounded b) { return Rounded(a.x_ - b.x_); }
  friend Rounded operator*(Rounded a, Rounded b) { return Rounded(a.x_ * b.x_); }
  friend Rounded operator/(Rounded a, Rounded b) { return Rounded(a.x_ / b.x_); }
  friend Rounded operator-(Rounded a) {
    a.x_ = -a.x_;
    return a;
  }
  Rounded& operator+=(Rounded b) { return *this = *this + b; }
  Rounded& operator-=(Rounded b) { return *this = *this - b; }
  Rounded& operator*=(Rounded b) { return *this = *this * b; }
  Rounded& operator/=(Rounded b) { return *this = *this / b; }
  friend bool operator==(Rounded a, Rounded b) { return a.x_ == b.x_; }
  friend std::partial_ordering operator<=>(Rounded a, Rounded b) { return a.x_ <=> b.x_; }
  friend Rounded abs(Rounded a) { return Rounded(std::abs(a.x_)); }
  friend Rounded sqrt(Rounded a) { return Rounded(std::sqrt(a.x_)); }

 private:
  static double round(double x) { return Policy::format().round(x); }
  double x_ = 0;
};

using Bf16 = Rounded<Fixed<kBf16>>;
using Fp16 = Rounded<Fixed<kFp16>>;
using Tf32 = Rounded<Fixed<kTf32>>;
using Fp32 = Rounded<Fixed<kFp32>>;
using AnyFormat = Rounded<Working>;  ///< the scalar of the thread's current format

template <class P> std::ostream& operator<<(std::ostream& out, Rounded<P> x) { return out << x.value(); }

template <class P> inline constexpr bool fits_in_double<Rounded<P>> = true;

template <class P> struct Scalar<Rounded<P>> {
  static constexpr std::string_view name = "rounded";
  static constexpr bool exact = false;
  static Rounded<P> from(double x) { return Rounded<P>(x); }
  static double to_double(Rounded<P> x) { return x.value(); }
};

}  // namespace delta

template <class P> struct Eigen::NumTraits<delta::Rounded<P>> : Eigen::GenericNumTraits<delta::Rounded<P>> {
  enum { IsSigned = 1 };  // else Eigen takes every number for its own absolute value
};
