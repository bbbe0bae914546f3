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
TEST(StepNorm, WithOneDecayPerChannelAndReadBeforeTheDecay) {
  Random r(4);
  for (Index n : {1, 2, 3, 8})
    for (int i = 0; i < 50; ++i) {
      MicroStep<double> s = step(r, n, 1);
      Vec<double> d(n);
      for (Index j = 0; j < n; ++j) d[j] = r.below(4) == 0 ? 0 : r.below(4) == 0 ? 1 : r.uniform();
      s.d = d, s.pre_decay = i % 2 == 0;
      if (i % 5 == 0) s.x.setZero();                                                     // nothing is read
      if (i % 7 == 0) s.d = Decay<double>(), s.x = s.y, s.beta = 1 / s.y.squaredNorm();  // a projector
      EXPECT_NEAR(step_norm(s), sequence_growth({s}), 1e-9) << n << ' ' << i;
    }
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
TEST(SharpGrowth, OfAnyStrengthIsTheLargestNormOverAllAngles) {
  Random r(5);
  for (int i = 0; i < 200; ++i) {
    const double beta = r.uniform(0, 3), lambda = r.uniform(-2, 2), G = sharp_growth(beta, lambda);
    double largest = 0;
    for (int j = 0; j <= 1000; ++j) {
      const double angle = M_PI * j / 1000;
      Vec<double> k(3), q(3);
      k << 1, 0, 0, q << std::cos(angle), std::sin(angle), 0;
      largest =
          std::max(largest, step_norm({.d = 1., .x = k + lambda * q, .y = k, .v = Vec<double>::Zero(1), .beta = beta}));
    }
    EXPECT_LE(largest, G + 1e-12) << beta << ' ' << lambda;
    EXPECT_NEAR(largest, G, 1e-4) << beta << ' ' << lambda;
  }
}
TEST(Certificate, NamesTheWorstTokenAndTheFirstBeyondOne) {
  const Certificate good = certificate(sharp_bounds({0.7, 0.5}, {1, 1}, {1, 1}));
  EXPECT_TRUE(good.holds);
  EXPECT_LT(good.product, 1);
  const Certificate bad = certificate(sharp_bounds({0.7, 0.8, 0.9, 0.5}, {1, 1, 1, 1}, {1, 1, 1, 1}));
  EXPECT_FALSE(bad.holds);
  EXPECT_EQ(bad.fails_at, 1u);
  EXPECT_EQ(bad.worst, 2u);
  EXPECT_NEAR(bad.largest, 0.9 * std::sqrt(2.), 1e-15);
  EXPECT_FALSE(certificate({0.5, std::nan("")}).holds);
  EXPECT_TRUE(certificate(sharp_bounds({1}, {1}, {0})).holds) << "DeltaNet: exactly one";
}
TEST(WorstOrder, FindsThePairsThatGrow) {
  const auto steps_of = [](std::initializer_list<std::initializer_list<double>> keys_and_readers) {
    Steps<double> steps;
    for (const auto& row : keys_and_readers) {
      Vec<double> k(2), x(2);
      k << row.begin()[0], row.begin()[1], x << row.begin()[2], row.begin()[3];
      steps.push_back({.d = 1., .x = x, .y = k, .v = Vec<double>::Zero(1), .beta = 1});
    }
    return steps;
  };
  EXPECT_NEAR(worst_order(steps_of({{0, 1, -0.75, 1}, {0.6, -0.8, 0, -1.25}})), 1.25, 1e-12);
  EXPECT_NEAR(worst_order(steps_of({{5. / 13, -12. / 13, 5. / 13, 0}, {12. / 13, -5. / 13, 0, -5. / 13}})), 1.1175,
              5e-5);
  EXPECT_LE(worst_order(steps_of({{0.6, 0.8, 0.6, 0.8}, {1, 0, 1, 0}})), 1 + 1e-12) << "symmetric: none";
  EXPECT_EQ(worst_order({}), 0);
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
  const Certificate c = certificate(a.norm);
  EXPECT_EQ(c.worst, 7u);
  EXPECT_EQ(c.fails_at, 7u);
  EXPECT_LE(a.growth, c.product * (1 + 1e-12));
  EXPECT_LE(a.search, c.largest * (1 + 1e-12));
  ASSERT_EQ(a.inverse.size(), 3u);
  EXPECT_GT(a.inverse[0].condition, 1);

  Vec<double> channels(4);  // one decay per channel, read before the decay: the same function by another road
  channels.setConstant(0.95);
  Stream<double> other = stream;
  for (MicroStep<double>& s : other.steps) s.d = channels, s.x *= 0.95, s.pre_decay = true;
  const StreamAnalysis b = analyse(other, 8);
  EXPECT_NEAR(a.growth, b.growth, 1e-12);
  for (std::size_t t = 0; t < 20; ++t) EXPECT_NEAR(a.norm[t], b.norm[t], 1e-9);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(a.inverse[i].condition, b.inverse[i].condition, 1e-9);
}

}  // namespace
}  // namespace delta
