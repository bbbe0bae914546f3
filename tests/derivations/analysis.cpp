// SPDX-License-Identifier: Apache-2.0
// The analysis tools: each against its definition, and against the sequences of the derivations.
#include <gtest/gtest.h>

#include "derivations/analysis/stability.hpp"
#include "reference/core/random.hpp"
#include "reference/scalars/rational.hpp"

namespace delta {
namespace {

Vec<double> unit(Random& r, Index n) {
  Vec<double> x(n);
  for (Index i = 0; i < n; ++i) x[i] = r.normal();
  return x.normalized();
}

MicroStep<double> step(Random& r, Index n, double alpha) {
  const Vec<double> k = unit(r, n), q = unit(r, n);
  return {.d = alpha, .x = k + r.uniform() * q, .y = k, .v = Vec<double>::Zero(1), .beta = r.uniform(0.1, 1)};
}

TEST(StepNorm, IsTheNormOfTheTransition) {
  Random r(1);
  for (Index n : {2, 3, 8})
    for (int i = 0; i < 50; ++i) {
      const MicroStep<double> s = step(r, n, 0.9);
      EXPECT_NEAR(step_norm(s), sequence_growth({s}), 1e-12);
    }
}
TEST(StepNorm, IsDecidedExactlyOverTheRationals) {  // the growing pair: |I - x k^T|^2 = 25/16, reached
  Vec<Rational> k(2), x(2);
  k << Rational(0), Rational(1);
  x << Rational(-3) / 4, Rational(1);
  const MicroStep<Rational> s{.d = Rational(1), .x = x, .y = k, .v = Vec<Rational>::Zero(1), .beta = Rational(1)};
  EXPECT_TRUE(step_norm_at_most(s, Rational(5) / 4));
  EXPECT_FALSE(step_norm_at_most(s, Rational(5) / 4 - Rational(1) / 1000000));
  const MicroStep<Rational> decayed{.d = Rational(4) / 5, .x = x, .y = k, .v = s.v, .beta = Rational(1)};
  EXPECT_TRUE(step_norm_at_most(decayed, Rational(1)));
}
TEST(SharpGrowth, BoundsEveryTokenAndIsFoundBySearch) {
  Random r(2);
  for (int i = 0; i < 200; ++i) {
    const double lambda = r.uniform(), beta = r.uniform(0.05, 1);
    const Vec<double> k = unit(r, 4), q = unit(r, 4);
    const MicroStep<double> s{.d = 1., .x = k + lambda * q, .y = k, .v = Vec<double>::Zero(1), .beta = beta};
    EXPECT_LE(step_norm(s), sharp_growth(beta, lambda) + 1e-12);
    const double found = worst_growth(1, beta, lambda);
    EXPECT_LE(found, sharp_growth(beta, lambda) + 1e-12);
    EXPECT_NEAR(found, sharp_growth(beta, lambda), 1e-5);
  }
}
TEST(Certificate, NamesTheWorstToken) {
  const Certificate good = certificate({0.7, 0.5}, {1, 1}, {1, 1});
  EXPECT_TRUE(good.holds);
  EXPECT_LT(good.product, 1);
  const Certificate bad = certificate({0.7, 0.9, 0.5}, {1, 1, 1}, {1, 1, 1});
  EXPECT_FALSE(bad.holds);
  EXPECT_EQ(bad.worst, 1u);
  EXPECT_NEAR(bad.largest, 0.9 * std::sqrt(2.), 1e-15);
}
TEST(SequenceGrowth, OfTheGrowingPair) {
  std::vector<MicroStep<double>> steps;
  for (int t = 0; t < 40; ++t) {
    Vec<double> k(2), q(2);
    if (t % 2 == 0)
      k << 0, 1, q << -1, 0;
    else
      k << 0.6, -0.8, q << -0.8, -0.6;
    steps.push_back({.d = 1., .x = k + 0.75 * q, .y = k, .v = Vec<double>::Zero(1), .beta = 1});
    EXPECT_NEAR(contraction_factor(steps.back()), 0, 1e-15);
  }
  EXPECT_GT(sequence_growth(steps), 7523);
  EXPECT_LT(sequence_growth(steps), std::pow(1.25, 40) * 1.000001);
}
TEST(InverseGrowth, OfIdenticalKeys) {
  const InverseGrowth g = inverse_growth(Mat<double>::Ones(64, 64));
  EXPECT_EQ(g.largest_entry, 1);
  EXPECT_NEAR(g.condition, 82, 0.5);
  EXPECT_NEAR(inverse_growth(Mat<double>::Constant(32, 32, 3)).largest_entry, 3221225472., 1);
}

TEST(Analysis, OfAStream) {  // the bound is above what happens, and the worst step is found where it was put
  Random r(3);
  Stream<double> stream;
  for (int t = 0; t < 20; ++t) {
    const Vec<double> k = unit(r, 4);
    stream.steps.push_back({.d = 0.95, .x = k, .y = k, .v = Vec<double>::Zero(2), .beta = r.uniform(0.1, 1)});
  }
  stream.steps[7].x *= 3;
  stream.Q = Mat<double>::Zero(20, 4), stream.S0 = Mat<double>::Zero(2, 4);
  const StreamAnalysis a = analyse(stream, 8);
  EXPECT_EQ(a.worst_step, 7);
  EXPECT_LE(a.growth, a.product * (1 + 1e-12));
  EXPECT_LT(a.least_factor, 1);
  EXPECT_LE(a.largest_factor, 1);
  EXPECT_GT(a.inverse.condition, 1);

  Vec<double> channels(4);  // one decay per channel, read before the decay: the same function by another road
  channels.setConstant(0.95);
  Stream<double> other = stream;
  for (MicroStep<double>& s : other.steps) s.d = channels, s.x *= 0.95, s.pre_decay = true;
  const StreamAnalysis b = analyse(other, 8);
  EXPECT_NEAR(a.growth, b.growth, 1e-12);
  EXPECT_NEAR(a.largest_norm, b.largest_norm, 1e-12);
  EXPECT_NEAR(a.inverse.condition, b.inverse.condition, 1e-9);
}

}  // namespace
}  // namespace delta
