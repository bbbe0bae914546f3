// SPDX-License-Identifier: Apache-2.0
// Needs Arb, which is LGPL and optional: nothing else of the library includes this file. Debian 12:
// apt-get install libflint-dev libflint-arb-dev; link with -lflint-arb -lflint.
#pragma once
#if __has_include(<arb.h>)
#include <arb.h>
#else
#include <flint/arb.h>  // FLINT 3 has Arb in it
#endif

#include <Eigen/Core>
#include <cmath>
#include <ostream>
#include <utility>

#include "scalar.hpp"

namespace delta {

/// How many bits the midpoints of this thread's balls keep, while a `Scope` stands; 128 else. A ball may become wide at
/// any precision, and is never wrong.
class BallBits {
 public:
  static slong get() { return current(); }
  class Scope {
   public:
    explicit Scope(slong bits) : before_(std::exchange(current(), bits)) {}
    ~Scope() { current() = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    slong before_;
  };

 private:
  static slong& current() {
    thread_local slong bits = 128;
    return bits;
  }
};

/// A real number that is known to lie in [mid - rad, mid + rad]. Each operation on balls gives a ball that holds the
/// exact result for every choice of numbers in its operands, so that what a form returns is a theorem about its inputs.
/// The radius grows with every operation, whatever the numbers do: over a recurrence by a constant factor a step. More
/// bits make up for it.
///
/// Where two balls overlap, neither is below the other; `==` is about the balls and not about the numbers in them: the
/// same midpoint and the same radius.
/// \source{Johansson 2017, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic, arXiv:1611.02831}
class Ball {
 public:
  Ball() { arb_init(x_); }
  Ball(int n) : Ball() { arb_set_si(x_, n); }
  explicit Ball(double x) : Ball() { arb_set_d(x_, x); }  ///< exactly x
  Ball(const Ball& b) : Ball() { arb_set(x_, b.x_); }
  Ball(Ball&& b) noexcept : Ball() { arb_swap(x_, b.x_); }
  Ball& operator=(const Ball& b) { return arb_set(x_, b.x_), *this; }
  Ball& operator=(Ball&& b) noexcept { return arb_swap(x_, b.x_), *this; }
  ~Ball() { arb_clear(x_); }

  const arb_struct* arb() const { return x_; }

  friend Ball operator+(const Ball& a, const Ball& b) { return made(arb_add, a.x_, b.x_); }
  friend Ball operator-(const Ball& a, const Ball& b) { return made(arb_sub, a.x_, b.x_); }
  friend Ball operator*(const Ball& a, const Ball& b) { return made(arb_mul, a.x_, b.x_); }
  friend Ball operator/(const Ball& a, const Ball& b) { return made(arb_div, a.x_, b.x_); }
  friend Ball operator-(const Ball& a) {
    Ball c;
    arb_neg(c.x_, a.x_);
    return c;
  }
  Ball& operator+=(const Ball& b) { return arb_add(x_, x_, b.x_, BallBits::get()), *this; }
  Ball& operator-=(const Ball& b) { return arb_sub(x_, x_, b.x_, BallBits::get()), *this; }
  Ball& operator*=(const Ball& b) { return arb_mul(x_, x_, b.x_, BallBits::get()), *this; }
  Ball& operator/=(const Ball& b) { return arb_div(x_, x_, b.x_, BallBits::get()), *this; }
  friend bool operator==(const Ball& a, const Ball& b) { return arb_equal(a.x_, b.x_); }
  friend bool operator<(const Ball& a, const Ball& b) { return arb_lt(a.x_, b.x_); }
  friend bool operator<=(const Ball& a, const Ball& b) { return arb_le(a.x_, b.x_); }

  friend Ball exp(const Ball& a) { return made(arb_exp, a.x_); }
  friend Ball sqrt(const Ball& a) { return made(arb_sqrtpos, a.x_); }  ///< of those of its numbers that have one
  friend Ball abs(const Ball& a) {
    Ball c;
    arb_abs(c.x_, a.x_);
    return c;
  }
  /// A ball that holds max(x, y) for all x in a and y in b.
  friend Ball max(const Ball& a, const Ball& b) { return made(arb_max, a.x_, b.x_); }

  bool contains(double x) const { return arb_contains(x_, Ball(x).x_); }
  bool finite() const { return arb_is_finite(x_); }

  double lower() const {
    return end(arb_get_lbound_arf, ARF_RND_FLOOR);
  }  ///< a double that no number of the ball is below
  double upper() const {
    return end(arb_get_ubound_arf, ARF_RND_CEIL);
  }  ///< a double that no number of the ball is above
  double middle() const { return arf_get_d(arb_midref(x_), ARF_RND_NEAR); }
  double log2_radius() const {  ///< nearly; of an exact number, minus infinity
    return mag_is_zero(arb_radref(x_)) ? -INFINITY : mag_get_d_log2_approx(arb_radref(x_));
  }

 private:
  template <class F, class... X> static Ball made(F f, const X&... x) {
    Ball c;
    f(c.x_, x..., BallBits::get());
    return c;
  }
  template <class F> double end(F bound, arf_rnd_t round) const {
    arf_t e;
    arf_init(e);
    bound(e, x_, 64);
    const double d = arf_get_d(e, round);
    arf_clear(e);
    return d;
  }
  arb_t x_;
};

inline std::ostream& operator<<(std::ostream& out, const Ball& b) {
  return out << b.middle() << " +- 2^" << b.log2_radius();
}

template <> struct Scalar<Ball> {
  static constexpr std::string_view name = "ball";
  static constexpr bool exact = false;
  static Ball from(double x) { return Ball(x); }
  static double to_double(const Ball& x) { return x.middle(); }
};

}  // namespace delta

template <> struct Eigen::NumTraits<delta::Ball> : Eigen::GenericNumTraits<delta::Ball> {
  enum { IsSigned = 1 };  // else Eigen takes every number for its own absolute value
};
