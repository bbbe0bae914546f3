// SPDX-License-Identifier: Apache-2.0
// The checker is tested first: what must make it fail, does.
#include <gtest/gtest.h>

#include "checks/core/equivalence.hpp"
#include "checks/core/measure.hpp"

namespace delta {
namespace {

using Wanted = Result<DoubleDouble>;
using Got = Result<double>;
constexpr Expected kAllowed{1e-6, 1e-6};

/// Two lanes of 9 tokens, the exact numbers and a candidate that agrees with them.
Wanted wanted(DoubleDouble x = 1) {
  Wanted w(2, {Mat<DoubleDouble>::Constant(9, 3, x), Mat<DoubleDouble>::Constant(3, 4, x)});
  return w;
}
Got right(double x = 1) { return Got(2, {Mat<double>::Constant(9, 3, x), Mat<double>::Constant(3, 4, x)}); }

TEST(Checker, EqualPasses) {
  const Comparison c = compare(wanted(), right(), kAllowed);
  EXPECT_EQ(c.verdict, Verdict::passed);
  EXPECT_EQ(c.ratio, 0);
}

TEST(Checker, RoundingPassesAndTwiceTheExpectedErrorFails) {
  Got got = right();
  got[1].O.row(4).array() += 1.4e-6;
  EXPECT_EQ(compare(wanted(), got, kAllowed).verdict, Verdict::passed);
  got[1].O.row(4).array() += 0.3e-6;
  EXPECT_EQ(compare(wanted(), got, kAllowed).verdict, Verdict::marginal);
  got[1].O.row(4).array() += 1e-6;
  const Comparison c = compare(wanted(), got, kAllowed);
  EXPECT_EQ(c.verdict, Verdict::failed);
  EXPECT_EQ(c.which.id, "R1");
}

TEST(Checker, NanFailsWhereverItIs) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Got output = right(), state = right();
    output[1].O(8, 2) = bad;
    state[0].S(0, 3) = bad;
    EXPECT_EQ(compare(wanted(), output, kAllowed).verdict, Verdict::failed);
    EXPECT_EQ(compare(wanted(), state, kAllowed).verdict, Verdict::failed);
  }
}

TEST(Checker, NanRatiosFail) { EXPECT_EQ(judge(NAN), Verdict::failed); }

TEST(Checker, OneBadTailRowFailsAndIsNamed) {
  Got got = right();
  got[1].O.row(8) *= 1.01;
  const Comparison c = compare(wanted(), got, kAllowed);
  EXPECT_EQ(c.verdict, Verdict::failed);
  ASSERT_TRUE(c.distance.first_bad);
  EXPECT_EQ(c.distance.first_bad->row, 8);
  EXPECT_EQ(c.distance.first_bad->lane, 1u);
}

TEST(Checker, OneBadStateEntryFailsAndIsNamed) {
  Got got = right();
  got[0].S(2, 1) += 1e-3;
  const Comparison c = compare(wanted(), got, kAllowed);
  EXPECT_EQ(c.verdict, Verdict::failed);
  EXPECT_EQ(c.which.id, "R3");
  ASSERT_TRUE(c.distance.worst);
  EXPECT_EQ(c.distance.worst->tensor, "final_state");
  EXPECT_EQ(c.distance.worst->row, 2);
  EXPECT_EQ(c.distance.worst->column, 1);
  EXPECT_FALSE(c.distance.first_bad) << "every token is right";
}

TEST(Checker, ASmallLaneIsNotHiddenByALargeOne) {
  Wanted want = wanted();
  Got got = right();
  want[0].O *= DoubleDouble(1e6), got[0].O *= 1e6;
  got[1].O(3, 0) += 1e-4;
  EXPECT_EQ(compare(want, got, kAllowed).verdict, Verdict::failed);
}

TEST(Checker, AllZeroIsNotTrusted) {
  EXPECT_EQ(compare(wanted(0), right(0), kAllowed).verdict, Verdict::untrusted);
  EXPECT_EQ(compare(wanted(0), right(1e-30), kAllowed).verdict, Verdict::failed);
}

TEST(Checker, NothingIsNotTrusted) { EXPECT_EQ(compare(Wanted{}, Got{}, kAllowed).verdict, Verdict::untrusted); }

TEST(Checker, AReferenceThatSharesStorageIsNotTrusted) {
  const Got got = right();
  EXPECT_EQ(compare(got, got, kAllowed).verdict, Verdict::untrusted);
  EXPECT_EQ(compare(right(), got, kAllowed).verdict, Verdict::passed) << "equal numbers in memory of their own";
}

TEST(Checker, ShapesMustMatch) {
  Got fewer = right(), narrow = right(), turned = right();
  fewer.pop_back();
  narrow[1].O = Mat<double>::Ones(9, 2);
  turned[0].S = Mat<double>::Ones(4, 3);
  for (const Got& got : {fewer, narrow, turned}) {
    const Comparison c = compare(wanted(), got, kAllowed);
    EXPECT_EQ(c.verdict, Verdict::failed);
    EXPECT_NE(c.reason, "");
  }
}

// Wrong forms, as they are written by mistake. Each must be found by the exact scalars and by the ratio in bf16.

enum class Mistake {
  none,
  mask_without_decay,      ///< M for H in the output
  w_undecayed,             ///< Z = U~ - W S^T
  strict_mask,             ///< o reads the state before its own write
  interaction_transposed,  ///< K X^T
  interaction_undecayed,   ///< the plain Gram matrix in L_g
  beta_lost,               ///< L without beta
  decay_after_read,
  state_transposed,
  outer_product_swapped
};

template <Ring T> Output<T> mistaken(const Stream<T>& s, Index C, Mistake mistake) {
  Output<T> out{Mat<T>(s.tokens(), s.d_v()), s.S0};
  if (mistake == Mistake::decay_after_read) {
    for (Index t = 0; t < s.tokens(); ++t) {
      const MicroStep<T>& m = s.steps[static_cast<std::size_t>(t)];
      const Vec<T> e = m.v - out.S * m.x;
      m.d.decay_columns(out.S);
      out.S += m.beta * e * m.y.transpose();
      out.O.row(t) = out.S * s.Q.row(t).transpose();
    }
    return out;
  }
  for (Index begin = 0; begin < s.tokens(); begin += C) {
    const Index R = std::min(C, s.tokens() - begin);
    Mat<T> X(R, s.d_k()), Y(R, s.d_k()), V(R, s.d_v()), H = Mat<T>::Identity(R, R);
    Vec<T> beta(R), gamma(R);
    for (Index i = 0; i < R; ++i) {
      const MicroStep<T>& m = s.steps[static_cast<std::size_t>(begin + i)];
      X.row(i) = m.x.transpose(), Y.row(i) = m.y.transpose(), V.row(i) = m.v.transpose();
      beta[i] = m.beta, gamma[i] = i ? T(m.d[0] * gamma[i - 1]) : m.d[0];
      if (i) H.row(i).head(i) = m.d[0] * H.row(i - 1).head(i);
    }
    const Mat<T> Q = s.Q.middleRows(begin, R), XY = X * Y.transpose();
    const Mat<T> scores = mistake == Mistake::interaction_transposed ? Mat<T>(XY.transpose()) : XY;
    const Mat<T> decayed = mistake == Mistake::interaction_undecayed ? scores : Mat<T>(H.cwiseProduct(scores));
    const Vec<T> strength = mistake == Mistake::beta_lost ? Vec<T>(Vec<T>::Ones(R)) : beta;
    const Mat<T> L = strictly_lower<T>(strength.asDiagonal() * scores);
    const Mat<T> L_g = strictly_lower<T>(strength.asDiagonal() * decayed);
    const Mat<T> W = solve_unit_lower<T>(L, beta.asDiagonal() * X), U = solve_unit_lower<T>(L_g, beta.asDiagonal() * V);
    const Mat<T> WS = W * out.S.transpose();
    const Mat<T> Z = mistake == Mistake::w_undecayed ? Mat<T>(U - WS) : Mat<T>(U - gamma.asDiagonal() * WS);
    const Mat<T> QY = Q * Y.transpose();
    Mat<T> A = mistake == Mistake::mask_without_decay ? lower<T>(QY) : Mat<T>(H.cwiseProduct(QY));
    if (mistake == Mistake::strict_mask) A = strictly_lower<T>(A);
    out.O.middleRows(begin, R) = gamma.asDiagonal() * (Q * out.S.transpose()) + A * Z;
    const Mat<T> write = Z.transpose() * (H.row(R - 1).asDiagonal() * Y);
    const Mat<T> placed = mistake == Mistake::outer_product_swapped ? Mat<T>(write.transpose()) : write;
    out.S = gamma[R - 1] * out.S + placed;
    if (mistake == Mistake::state_transposed) out.S = Mat<T>(out.S.transpose());
  }
  return out;
}

class Planted : public testing::TestWithParam<Mistake> {
 protected:
  static constexpr Index C = 8;
  const Rule& rule = *find_rule("q_delta");
  Size size = Size::parse("B1_T21_H1_HV2_K4_V4_C8");

  template <Ring T> Result<T> compute_mistaken(const Problem<T>& p) const {
    return run<T>(rule.info, rule.over<T>(), p, [](const Stream<T>& s) { return mistaken<T>(s, C, GetParam()); });
  }
  bool none() const { return GetParam() == Mistake::none; }
};

TEST_P(Planted, IsFoundByEquality) {
  const Problem<GF61> p = over<GF61>(draw(rule.info, *find_family("gate_half"), size, 1));
  const Result<GF61> want = compute_paper<GF61>(rule, p), got = compute_mistaken<GF61>(p);
  EXPECT_EQ(want[0].O == got[0].O && want[0].S == got[0].S, none());
}

TEST_P(Planted, IsFoundByTheRatioInEveryPrecision) {
  int failed[3] = {};
  for (const Family& family : families()) {
    if (family.judge != Judge::ratio) continue;
    const Problem<double> p = draw(rule.info, family, size, 1);
    const Result<DoubleDouble> want = compute_paper<DoubleDouble>(rule, over<DoubleDouble>(p));
    int i = 0;
    for (const Format* f : {&kFp32, &kTf32, &kBf16}) {
      const Expected e = expected_error(rule, "chunkwise", C, p, want, f->p);  // in units of u
      const Working::Scope scope(*f);
      const Comparison c =
          compare(want, compute_mistaken<AnyFormat>(over<AnyFormat>(p)), {e.o * f->unit(), e.state * f->unit()});
      failed[i++] += c.verdict == Verdict::failed;
    }
  }
  for (const int n : failed) {
    if (none())
      EXPECT_EQ(n, 0);
    else
      EXPECT_GE(n, 5) << "families that find it";
  }
}

INSTANTIATE_TEST_SUITE_P(Mistakes, Planted,
                         testing::Values(Mistake::none, Mistake::mask_without_decay, Mistake::w_undecayed,
                                         Mistake::strict_mask, Mistake::interaction_transposed,
                                         Mistake::interaction_undecayed, Mistake::beta_lost, Mistake::decay_after_read,
                                         Mistake::state_transposed, Mistake::outer_product_swapped));

// The run as a whole.

TEST(Table, OnlyFamiliesThatSaySoEndUntrusted) {
  Selection what;
  what.quick = true;
  int rows = 0;
  check_equivalence(what, [&](const Row& r) {
    ++rows;
    EXPECT_NE(r.verdict, Verdict::failed) << r.rule << ' ' << r.form << ' ' << r.scalar << ' ' << r.family;
    if (r.verdict != Verdict::untrusted) return;
    EXPECT_NE(r.reason, "");
    EXPECT_EQ(find_family(r.family)->judge, Judge::conditioned)
        << r.rule << ' ' << r.form << ' ' << r.scalar << ' ' << r.family << ": " << r.reason;
  });
  EXPECT_GT(rows, 1000);
}

TEST(Table, TwoRunsGiveTheSameRowsInTheSameOrder) {
  Selection what;
  what.rules = {"q_delta"}, what.families = {"gate_half", "signed_swap"};
  auto all = [&] {
    std::vector<std::string> rows;
    check_equivalence(what, [&](const Row& r) {
      rows.push_back(r.form + r.against + r.scalar + r.family + r.shape + std::to_string(r.ratio));
    });
    return rows;
  };
  EXPECT_EQ(all(), all());
}

}  // namespace
}  // namespace delta
