// SPDX-License-Identifier: Apache-2.0
// What the debugger is tried on: one matrix of every scalar, and a derivation. Compiled with -Og -g.
#include <boost/multiprecision/cpp_int.hpp>

#include "derivations/core/transcript.hpp"
#include "derivations/ut_transform.cpp"
#include "reference/scalars/double_double.hpp"
#include "reference/scalars/dual.hpp"
#include "reference/scalars/multiprecision.hpp"
#include "reference/scalars/rounded.hpp"

using namespace delta;
using BoostRational =
    boost::multiprecision::number<boost::multiprecision::cpp_rational_backend, boost::multiprecision::et_off>;

template <class M> [[gnu::noinline]] void keep(const M& m) { asm volatile("" : : "r"(&m) : "memory"); }

[[gnu::noinline]] void all_scalars_ready() { asm volatile("" : : : "memory"); }

[[gnu::noinline]] void every_scalar() {
  Mat<double> d(2, 3);
  d << 1, -0.5, 1e-9, 4, 5, 6;
  Mat<Rational> q(2, 2);
  q << Rational(1) / 3, Rational(-22) / 7, Rational(0), Rational("123456789012345678901234567890/1000000007");
  Mat<BoostRational> b(1, 2);
  b << BoostRational(1) / 3, BoostRational("-123456789012345678901234567890/1000000007");
  Mat<GF61> g(1, 2);
  g << GF61(-1), GF61(12);
  Mat<Generic> x(1, 2);
  x << Generic(5), Generic::variable(GF61(7)) * Generic::variable(GF61(2));
  Mat<Dual<GF61>> u(1, 1);
  u << Dual<GF61>(GF61(2), GF61(3));
  Mat<DoubleDouble> w(1, 2);
  w << DoubleDouble(1) / DoubleDouble(3), DoubleDouble(-2.5);
  Mat<Mp50> m(1, 3);
  m << Mp50(1) / 3, Mp50(-1024), Mp50("1e-30");
  Mat<Bf16> h(1, 2);
  h << Bf16(1.0), Bf16(-0.1);
  Mat<Fp16> f(1, 1);
  f << Fp16(1.5);
  Vec<Rational> vec(2);
  vec << Rational(1) / 2, Rational(3);
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> row_major(2, 2);
  row_major << 1, 2, 3, 4;
  Eigen::Matrix2d fixed;
  fixed << 1, 2, 3, 4;
  all_scalars_ready();
  keep(d), keep(q), keep(b), keep(g), keep(x), keep(u), keep(w), keep(m), keep(h), keep(f), keep(vec), keep(row_major),
      keep(fixed);
}

int main() {
  every_scalar();
  const Setup setup;
  Record record;
  Derivation<Rational> derivation(setup, record);
  ut_transform(derivation);
  return record.all_hold() ? 0 : 1;
}
