// SPDX-License-Identifier: Apache-2.0
// The checker is tested first: what must make it fail, does.
#include <gmock/gmock.h>

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

/// A rule whose micro-steps leave out the decay that its formula has.
struct disagreeing {
  static constexpr RuleInfo info{.id = "disagreeing", .forget = Forget::per_head, .strength = Strength::per_head};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = {}, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
  }
  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S *= t.alpha;
    S += t.beta * Vec<T>(t.v - S * t.k) * t.k.transpose();
    return S * t.q;
  }
};

TEST(Checker, ARuleThatDisagreesWithItselfIsOneFailureThatNamesTheToken) {
  const Rule wrong{disagreeing::info, {{}, ops<disagreeing, GF61>(), {}, {}, {}, {}, {}}};  // no form may be run
  std::vector<Row> rows;
  check_equivalence({}, [&](const Row& r) { rows.push_back(r); }, nullptr, {&wrong});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verdict, Verdict::failed);
  EXPECT_EQ(rows[0].reason, "steps and paper_step disagree, first at token 0; its forms were not run");
  for (const Rule* rule : rules()) EXPECT_EQ(disagreement(*rule, 1), "") << rule->info.id;
}

TEST(Checker, AFormThatNeedsTooLargeAMatrixIsNotRun) {
  using testing::HasSubstr;
  EXPECT_THAT(too_large("parallel", Size::parse("T20000")), HasSubstr("20000 x 20000 numbers, expected at most 4096"));
  EXPECT_THAT(too_large("chunkwise", Size::parse("T20000_C20000")), HasSubstr("try a smaller C"));
  EXPECT_EQ(too_large("parallel", Size::parse("T4096")), "");
  EXPECT_EQ(too_large("parallel", Size::parse("T20000_packed0.4000.8000")), "") << "no sequence is that long";
  for (const char* linear : {"recurrent", "scan", "chunkwise", "one_solve"})
    EXPECT_EQ(too_large(linear, Size::parse("T20000")), "") << linear;
  std::vector<Row> rows;
  check_equivalence({.rules = {"linear"},
                     .forms = {"parallel"},
                     .families = {"gate_half"},
                     .scalars = {"double"},
                     .size = Size::parse("T4097")},
                    [&](const Row& r) { rows.push_back(r); });
  for (const Row& r : rows) EXPECT_EQ(r.verdict, Verdict::skipped) << r.reason;
}

}  // namespace
}  // namespace delta
