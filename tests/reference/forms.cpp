// SPDX-License-Identifier: Apache-2.0
// Every form is the recurrence, exactly, for every rule and every shape; and every intermediate is what it is said to
// be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "checks/core/equivalence.hpp"
#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "tests/reference/streams.hpp"

namespace delta {
namespace {

/// Every number of the rule's inputs at random from an exact scalar, and alpha = 0 (or one channel of it) at every
/// token whose number in the whole tensor is in `resets`.
template <Ring T>
Problem<T> random_problem(const Rule& rule, const Shape& shape, std::uint64_t seed, const std::vector<Index>& resets) {
  Problem<T> p = generic<T>(draw(rule.info, families()[0], shape, seed), seed);
  if (!p.alpha.empty())
    for (Index r : resets)
      if (const Index tokens = p.alpha.B * p.alpha.tokens; r < tokens) {
        const Index b = r / p.alpha.tokens, t = r % p.alpha.tokens;
        for (Index h = 0; h < p.alpha.heads; ++h) p.alpha.at(b, t, h)[r % p.alpha.cols] = T(0);
      }
  return p;
}

/// The forms whose result differs from that of the recurrence.
template <Ring T> std::vector<std::string> wrong_forms(const Rule& rule, const Problem<T>& p, Index C) {
  const Problem<double> like = p.template map<double>([](const T&) { return 0.0; });
  const Result<T> want = compute<T>(rule, "recurrent", C, p);
  std::vector<std::string> wrong;
  for (const std::string& form : form_names()) {
    if (!applies(rule, form, like)) continue;
    const Result<T> got = compute<T>(rule, form, C, p);
    const bool equal =
        std::ranges::equal(want, got, [](const Output<T>& a, const Output<T>& b) { return a.O == b.O && a.S == b.S; });
    if (!equal) wrong.push_back(form);
  }
  return wrong;
}

class EveryForm : public testing::TestWithParam<const Rule*> {
 protected:
  const Rule& rule = *GetParam();
  template <Ring T> void expect_recurrence(const Shape& shape, Index C) const {
    const std::vector<std::string> wrong = wrong_forms<T>(rule, random_problem<T>(rule, shape, 11, {2, 3, 9, 40}), C);
    EXPECT_THAT(wrong, testing::IsEmpty()) << shape.text() << "_C" << C;
  }
};

TEST_P(EveryForm, AnyLengthAndAnyChunkOverAPrimeField) {
  for (Index C : {1, 2, 7, 16})
    for (Index T : std::initializer_list<Index>{0, 1, 2, 5, C - 1, C, C + 1, C + 5, 2 * C + 2})
      expect_recurrence<GF61>({.T = T, .HV = 2, .d_k = 5, .d_v = 3, .n_h = 3}, C);
}

TEST_P(EveryForm, TheSameOverTheRationals) {
  expect_recurrence<Rational>({.T = 7, .d_k = 3, .d_v = 2, .n_h = 2}, 3);
  expect_recurrence<Rational>({.T = 4, .d_k = 2, .d_v = 3, .n_h = 3}, 4);
}

TEST_P(EveryForm, WithItsDerivatives) { expect_recurrence<Dual<GF61>>({.T = 11, .d_k = 4, .d_v = 3, .n_h = 2}, 4); }

TEST_P(EveryForm, OneChannelIsNoSpecialCase) {
  expect_recurrence<GF61>({.T = 9, .d_k = 1, .d_v = 4, .n_h = 2}, 4);
  expect_recurrence<GF61>({.T = 9, .d_k = 4, .d_v = 1, .n_h = 2}, 4);
  expect_recurrence<GF61>({.T = 9, .d_k = 1, .d_v = 1, .n_h = 1}, 4);
}

TEST_P(EveryForm, BatchesGroupedHeadsAndPackedSequences) {
  expect_recurrence<GF61>({.B = 3, .T = 9, .H = 2, .HV = 6, .d_k = 4, .d_v = 3, .n_h = 2}, 4);
  expect_recurrence<GF61>({.T = 24, .H = 2, .HV = 4, .d_k = 3, .d_v = 4, .n_h = 3, .offsets = {0, 0, 5, 5, 14, 15, 22}},
                          4);
  expect_recurrence<GF61>({.T = 0, .HV = 2, .d_k = 3, .d_v = 4, .offsets = {0, 0, 0}}, 4);
}

TEST_P(EveryForm, RealSizes) {
  expect_recurrence<GF61>({.T = 130, .d_k = 64, .d_v = 64, .n_h = 2}, 64);
  expect_recurrence<GF61>({.T = 130, .d_k = 64, .d_v = 16, .n_h = 2}, 130);
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryForm, testing::ValuesIn(rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

RC_GTEST_PROP(Forms, AllEqualTheRecurrence, ()) {
  const Rule& rule = *rules()[*rc::gen::inRange<std::size_t>(0, rules().size())];
  auto from = [](Index low, Index high) { return *rc::gen::inRange<Index>(low, high + 1); };
  Shape z{.B = 1, .T = from(0, 20), .H = from(1, 2), .d_k = from(1, 4), .d_v = from(1, 4), .n_h = from(1, 3)};
  z.HV = z.H * from(1, 3);
  if (*rc::gen::arbitrary<bool>()) {
    std::vector<Index> cuts = *rc::gen::container<std::vector<Index>>(rc::gen::inRange<Index>(0, z.T + 1));
    std::ranges::sort(cuts);
    z.offsets = {0};
    std::ranges::copy(cuts, std::back_inserter(z.offsets));
  } else {
    z.B = from(1, 2);
  }
  const auto resets = *rc::gen::container<std::vector<Index>>(rc::gen::inRange<Index>(0, z.B * z.T + 1));
  const Index C = from(1, 24);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const std::vector<std::string> wrong = wrong_forms<GF61>(rule, random_problem<GF61>(rule, z, seed, resets), C);
  RC_LOG() << rule.info.id << ' ' << z.text() << "_C" << C << " seed " << seed << '\n';
  RC_ASSERT(wrong.empty());
}

/// Streams that no registered rule makes: all must still be the recurrence.
TEST(Forms, AgreeOnEveryKindOfMicroStep) {
  Random r(5);
  auto element = [&] { return GF61::from_residue(r.bits() >> 3); };
  for (Decays decays : {Decays::none, Decays::scalar, Decays::channel})
    for (bool pre_decay : {false, true})
      for (Index m : {1, 3})
        for (Index T : {0, 1, 9}) {
          SCOPED_TRACE(testing::Message() << "decays " << static_cast<int>(decays) << " pre_decay " << pre_decay
                                          << " m " << m << " T " << T);
          const Stream<GF61> s = random_stream<GF61>({T, 3, 2, m, decays, pre_decay, 4}, element);
          const Output<GF61> want = recurrent(s);
          for (const Form<GF61>& form : kForms<GF61>) {
            SCOPED_TRACE(form.id);
            if (!form.applies || form.applies(s)) expect_equal(want, form.run(s, 4));
          }
        }
}

// ---- Intermediates. One stream with scalar decay, one reset in each chunk of 4 tokens, two micro-steps a token.

class Intermediates : public testing::Test {
 protected:
  static constexpr Index C = 4, m = 2, T = 10, d_k = 3, d_v = 2;
  Random r{3};
  Stream<GF61> s = random_stream<GF61>({T, d_k, d_v, m, Decays::scalar, false, 5},
                                       [this] { return GF61::from_residue(r.bits() >> 3); });
  std::vector<MicroStepTrace<GF61>> trace;

  void SetUp() override {
    recurrent(s, [&](const MicroStepTrace<GF61>& t) { trace.push_back(t); });
  }

  Mat<GF61> state_before(Index i) const { return i == 0 ? s.S0 : trace[i - 1].S; }
  /// The transition of micro-step i: S -> S P + u y^T.
  Mat<GF61> P(Index i) const {
    Mat<GF61> P = Mat<GF61>::Identity(d_k, d_k);
    s.steps[i].d.decay_columns(P);
    return P - s.steps[i].p() * s.steps[i].y.transpose();
  }
  Mat<GF61> P(Index first, Index last) const {  // first..last, ascending; the identity when empty
    Mat<GF61> product = Mat<GF61>::Identity(d_k, d_k);
    for (Index i = first; i <= last; ++i) product = product * P(i);
    return product;
  }
  GF61 alpha(Index first, Index last) const {
    GF61 product(1);
    for (Index i = first; i <= last; ++i) product *= s.steps[i].d[0];
    return product;
  }
};

TEST_F(Intermediates, ErrorsBeforeAndAfterTheWrite) {
  ASSERT_EQ(trace.size(), s.steps.size());
  for (Index i = 0; i < m * T; ++i) {
    const MicroStep<GF61>& step = s.steps[i];
    EXPECT_TRUE(trace[i].e_prior == Vec<GF61>(step.v - step.d[0] * (state_before(i) * step.x)));
    const GF61 a = step.y.dot(step.x);
    EXPECT_TRUE(trace[i].e_posterior == Vec<GF61>((GF61(1) - step.beta * a) * trace[i].e_prior)) << "F89";
  }
}

TEST_F(Intermediates, OfTheChunkForm) {
  std::vector<Chunk<GF61>> chunks;
  chunkwise(s, C, [&](const Chunk<GF61>& c) { chunks.push_back(c); });
  ASSERT_EQ(chunks.size(), 3u);
  for (Index n = 0; n < 3; ++n) {
    const Chunk<GF61>& c = chunks[n];
    const Index begin = m * C * n, R = c.gamma.size();
    ASSERT_EQ(R, n < 2 ? m * C : m * 2);
    for (Index i = 0; i < R; ++i) {
      const MicroStep<GF61>& step = s.steps[begin + i];
      EXPECT_EQ(c.gamma[i], alpha(begin, begin + i));
      Vec<GF61> w = step.x, u = step.v;  // F82: w_i = beta_i (x_i - sum_j w_j (y_j . x_i)), u~_i with the decay between
      for (Index j = 0; j < R; ++j) {
        const GF61 yx = s.steps[begin + j].y.dot(step.x);
        const GF61 H = j > i ? GF61(0) : alpha(begin + j + 1, begin + i);
        EXPECT_EQ(c.H(i, j), H);
        EXPECT_EQ(c.L(i, j), j < i ? step.beta * yx : GF61(0));
        EXPECT_EQ(c.L_g(i, j), j < i ? step.beta * H * yx : GF61(0));
        if (j < i) w -= yx * c.W.row(j).transpose(), u -= H * yx * c.U.row(j).transpose();
      }
      EXPECT_TRUE(c.W.row(i).transpose() == step.beta * w);
      EXPECT_TRUE(c.U.row(i).transpose() == step.beta * u);
      EXPECT_TRUE(c.Z.row(i).transpose() == step.beta * trace[begin + i].e_prior) << "F55: z = beta e~";
    }
    EXPECT_TRUE(c.S == trace[begin + R - 1].S);
  }
}

TEST_F(Intermediates, OfTheOneSolveFormAreThoseOfTheChunkForm) {
  std::vector<Chunk<GF61>> chunks;
  std::vector<OneSolve<GF61>> solves;
  chunkwise(s, C, [&](const Chunk<GF61>& c) { chunks.push_back(c); });
  one_solve(s, C, [&](const OneSolve<GF61>& c) { solves.push_back(c); });
  ASSERT_EQ(solves.size(), chunks.size());
  for (std::size_t n = 0; n < solves.size(); ++n) {
    EXPECT_TRUE(solves[n].L == chunks[n].L_g);
    EXPECT_TRUE(solves[n].Z == chunks[n].Z);
    EXPECT_TRUE(solves[n].S == chunks[n].S);
    // D_g W = (I + L_g)^-1 B D_g X: why one solve is enough.
    EXPECT_TRUE(solve_unit_lower<GF61>(solves[n].L, solves[n].P_bar) == chunks[n].gamma.asDiagonal() * chunks[n].W);
  }
}

TEST_F(Intermediates, OfTheParallelForm) {
  int shown = 0;
  parallel(s, [&](const Parallel<GF61>& p) {
    ++shown;
    for (Index t = 0; t < T; ++t) {
      const Index last = m * t + m - 1;
      const Vec<GF61> q = s.Q.row(t).transpose();
      EXPECT_TRUE(p.Q_in.row(t).transpose() == P(0, last) * q);
      for (Index j = 0; j < m * T; ++j)
        EXPECT_EQ(p.A(t, j), j > last ? GF61(0) : s.steps[j].beta * s.steps[j].y.dot(Vec<GF61>(P(j + 1, last) * q)))
            << "F40";
    }
    // The same matrix by one triangular solve over the whole sequence: A = (H . Q Y^T)(I + L_g)^-1 B.
    one_solve(s, T, [&](const OneSolve<GF61>& c) {
      Mat<GF61> B = Mat<GF61>::Zero(m * T, m * T);
      for (Index i = 0; i < m * T; ++i) B(i, i) = s.steps[i].beta;
      EXPECT_TRUE(p.A == c.A * solve_unit_lower<GF61>(c.L, B));
    });
  });
  EXPECT_EQ(shown, 1);
}

TEST_F(Intermediates, OfTheScan) {
  std::vector<Affine<GF61>> prefix;
  scan(s, 1, [&](const Affine<GF61>& a) { prefix.push_back(a); });
  ASSERT_EQ(prefix.size(), std::size_t(T));
  for (Index t = 0; t < T; ++t) {
    const Index last = m * t + m - 1;
    Mat<GF61> U = Mat<GF61>::Zero(d_v, d_k);  // F60
    for (Index i = 0; i <= last; ++i) U += s.steps[i].u() * s.steps[i].y.transpose() * P(i + 1, last);
    EXPECT_TRUE(prefix[t].A == P(0, last));
    EXPECT_TRUE(prefix[t].U == U);
    EXPECT_TRUE(s.S0 * prefix[t].A + prefix[t].U == trace[last].S);
  }
}

TEST_F(Intermediates, EditsComposeAssociativelyAndDoNotCommute) {
  auto edit = [&](Index i) { return Affine<GF61>{P(i), s.steps[i].u() * s.steps[i].y.transpose()}; };
  const Affine<GF61> a = edit(0), b = edit(1), c = edit(2);
  const Affine<GF61> left = a.then(b).then(c), right = a.then(b.then(c)), swapped = b.then(a);
  EXPECT_TRUE(left.A == right.A && left.U == right.U);
  EXPECT_FALSE(a.then(b).A == swapped.A);
}

}  // namespace
}  // namespace delta
