// SPDX-License-Identifier: Apache-2.0
// Proofs: balls hold the exact numbers, a number beside them is seen, and a reference that is slightly wrong is not
// certified. Where Arb is missing there is one line that says what to install.
#include "checks/proof/proof.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checks/core/equivalence.hpp"
#include "checks/core/measure.hpp"
#include "checks/proof/have_arb.hpp"
#include "checks/vectors/vectors.hpp"
#include "checks/verify/prove.hpp"

#if DELTAREF_HAVE_ARB
#include "reference/scalars/ball.hpp"
#endif

namespace delta {
namespace {

using testing::HasSubstr;

#if !DELTAREF_HAVE_ARB

TEST(Proof, WithoutArbSaysWhatToInstall) {
  EXPECT_FALSE(have_balls());
  try {
    require_balls();
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("apt-get install libflint-dev libflint-arb-dev"));
  }
}

#else

static_assert(Real<Ball>);

// ---------------------------------------------------------------- balls

/// Whether the ball holds that rational: both its ends are rationals, on either side.
bool holds(const Ball& b, const Rational& x) { return Rational(b.lower()) <= x && x <= Rational(b.upper()); }

TEST(Balls, HoldTheRationalResultOfWhatTheyWereMadeFrom) {
  Random r(3);
  for (const long bits : {24, 53, 128})
    for (int i = 0; i < 200; ++i) {
      const BallBits::Scope scope(bits);
      Ball b(1);
      Rational x(1);
      for (int step = 0; step < 12; ++step) {
        const double y = r.uniform(0.5, 2) * r.sign();
        switch (r.below(4)) {
          case 0:
            b += Ball(y), x += Rational(y);
            break;
          case 1:
            b -= Ball(y), x -= Rational(y);
            break;
          case 2:
            b *= Ball(y), x *= Rational(y);
            break;
          default:
            b /= Ball(y), x /= Rational(y);
        }
        ASSERT_TRUE(holds(b, x)) << bits << " bits, step " << step << ": " << b;
      }
      EXPECT_TRUE(holds(sqrt(b * b), abs(x)));
      EXPECT_TRUE(holds(abs(-b), abs(x)));
      EXPECT_TRUE(holds(max(b, Ball(0)), x > 0 ? x : Rational(0)));
    }
}

TEST(Balls, MoreBitsMakeThemSmaller) {
  auto third = [](long bits) {
    const BallBits::Scope scope(bits);
    return Ball(1) / Ball(3);
  };
  EXPECT_NEAR(third(100).log2_radius(), -102, 2);
  EXPECT_NEAR(third(200).log2_radius(), -202, 2);
  EXPECT_EQ((Ball(1) / Ball(4)).log2_radius(), -INFINITY) << "an exact number has no radius";
}

TEST(Balls, ExponentialsAndRootsHoldTheNumber) {
  for (const double x : {-40.0, -0.75, -1e-9, 0.0}) EXPECT_TRUE(exp(Ball(x)).upper() >= std::exp(x) * (1 - 1e-15));
  EXPECT_EQ(exp(Ball(-INFINITY)), Ball(0)) << "a log decay of minus infinity is a reset";
  const Ball two = sqrt(Ball(2)) * sqrt(Ball(2));
  EXPECT_TRUE(two.contains(2));
  EXPECT_FALSE(two.contains(std::nextafter(2, 3)));
}

TEST(Balls, WhereTheyOverlapNeitherIsBelow) {
  const Ball third = Ball(1) / Ball(3), other = Ball(1) - Ball(2) / Ball(3);
  EXPECT_FALSE(third < other || other < third);
  EXPECT_TRUE(third < Ball(0.34) && Ball(0.33) < third);
}

// ---------------------------------------------------------------- proofs of results

struct Case {
  const Rule& rule;
  Problem<double> p;
  Result<double> rounded;  ///< the exact result, each number rounded to the nearest double

  Case(const Rule& r, const char* family, std::string_view size) : rule(r) {
    p = draw(rule.info, *find_family(family), Size::parse(size), 7);
    for (const Output<Rational>& lane : compute_paper<Rational>(rule, over<Rational>(p))) {
      auto narrow = [](const Rational& x) { return Scalar<Rational>::to_double(x); };
      rounded.push_back({lane.O.unaryExpr(narrow).cast<double>(), lane.S.unaryExpr(narrow).cast<double>()});
    }
  }
  Index numbers() const { return p.shape.T * p.shape.HV * p.shape.d_v; }
};

TEST(Proof, TheRoundedExactResultOfEveryRuleIsProvedToBeThat) {
  for (const Rule* rule : rules()) {
    SCOPED_TRACE(rule->info.id);
    const Case c(*rule, "gate_half", kQuickSize);
    const Proof proof = prove(*rule, c.p, c.rounded);
    EXPECT_TRUE(proof.sharp && proof.whole());
    ASSERT_EQ(proof.outputs.size(), 2u);
    for (const Proved& t : proof.outputs) {
      EXPECT_EQ(t.rounded, t.elements);
      EXPECT_EQ(t.not_rounded, 0);
      EXPECT_LE(t.error.upper, 0x1p-53);
    }
    EXPECT_EQ(proof.find("o")->elements, c.numbers());
  }
}

TEST(Proof, OneUnitInTheLastPlaceIsSeenOutsideTheBall) {
  for (const Rule* rule : rules()) {
    SCOPED_TRACE(rule->info.id);
    const Case c(*rule, "gate_half", kQuickSize);
    Result<double> off = c.rounded;
    double& x = off[1].O(5, 2);
    x = std::nextafter(x, INFINITY);
    const Proof proof = prove(*rule, c.p, off);
    const Proved& o = *proof.find("o");
    EXPECT_EQ(o.not_rounded, 1);
    EXPECT_EQ(o.rounded, o.elements - 1);
    EXPECT_GT(o.error.lower, 0);
    off = c.rounded;
    off[0].S(1, 1) = std::nextafter(off[0].S(1, 1), -INFINITY);
    EXPECT_EQ(prove(*rule, c.p, off).find("final_state")->not_rounded, 1);
  }
}

TEST(Proof, BoundsAreWithinAThousandthOfTheErrorAndHoldIt) {
  const Rule& rule = *find_rule("q_delta");
  for (const double size : {1e-3, 1e-9, 1e-15}) {
    Case c(rule, "gate_half", "B1_T21_H1_HV1_K6_V4_C8");
    c.rounded[0].O *= 1 + size;
    const Bounds b = prove(rule, c.p, c.rounded).find("o")->error;
    const double error = distance(compute_paper<Rational>(rule, over<Rational>(c.p)), c.rounded).o;
    EXPECT_LE(b.upper - b.lower, b.lower / 1000);
    EXPECT_LE(b.lower, error * (1 + 1e-12));
    EXPECT_GE(b.upper, error * (1 - 1e-12));
  }
}

TEST(Proof, LongSequencesTakeMoreBits) {
  const Rule& rule = *find_rule("delta");
  const Problem<double> p = draw(rule.info, *find_family("gate_half"), Size::parse("T600_K8_V4"), 1);
  const Proof proof = prove(rule, p, compute<double>(rule, "recurrent", 8, p));
  EXPECT_TRUE(proof.sharp);
  EXPECT_GT(proof.bits, 256) << "the radius grows by some half a bit a token";
  EXPECT_LT(proof.find("o")->error.upper, 1e-14);
}

TEST(Proof, WhatIsNotFiniteHasAnInfiniteError) {
  const Rule& rule = *find_rule("delta");
  Case c(rule, "gate_half", kQuickSize);
  c.rounded[0].O(0, 0) = NAN;
  const Proof proof = prove(rule, c.p, c.rounded);
  EXPECT_EQ(proof.find("o")->error.lower, INFINITY);
  EXPECT_EQ(proof.find("o")->not_rounded, 1);
}

// ---------------------------------------------------------------- the double reference

template <int Bits> Steps<double> with_slip(const Token<double>& t) {
  Steps<double> s = find_rule("gated_delta")->over<double>().steps(t);
  s[0].beta *= 1 + std::ldexp(1.0, -Bits);
  return s;
}

TEST(Certificate, ADoubleReferenceWithAPlantedSlipGetsNone) {
  const Rule& rule = *find_rule("gated_delta");
  const Size size = Size::parse(kQuickSize);
  const Problem<double> p = draw(rule.info, *find_family("gate_half"), size, 1);
  const Expected e = expected_error(rule, "recurrent", size.C, p,
                                    compute<DoubleDouble>(rule, "recurrent", size.C, over<DoubleDouble>(p)), 53);
  const Expected bound{e.o * kFp64.unit(), e.state * kFp64.unit()};

  Row honest;
  certify(honest, rule, p, compute<double>(rule, "recurrent", size.C, p), bound);
  EXPECT_EQ(honest.verdict, Verdict::passed) << honest.ratio;

  for (const auto slip : {&with_slip<48>, &with_slip<40>, &with_slip<30>}) {
    Rule wrong = rule;
    std::get<RuleOps<double> >(wrong.ops).steps = slip;
    Row row;
    certify(row, wrong, p, compute<double>(wrong, "recurrent", size.C, p), bound);
    EXPECT_EQ(row.verdict, Verdict::failed) << row.ratio;
  }
}

TEST(Certificate, TheQuickSuiteIsCertified) {
  Selection what;
  what.quick = what.prove = true;
  what.forms = {"recurrent"}, what.scalars = {"double"};
  int proofs = 0;
  check_equivalence(what, [&](const Row& r) {
    if (!r.of_proof()) return;
    ++proofs;
    EXPECT_EQ(r.verdict, Verdict::passed) << r.rule << ' ' << r.family << ' ' << r.ratio << ' ' << r.reason;
    for (const Proved& t : r.proof.outputs) EXPECT_LE(t.error.lower, t.error.upper);
  });
  EXPECT_GT(proofs, 300);
}

// ---------------------------------------------------------------- dumps

FileVerdict proved(const std::string& file) {
  const std::string path = std::string(DELTAREF_DUMPS) + "/" + file + ".safetensors";
  FileVerdict v = verify_file(path, {}, 2);
  prove_errors(v, {}, 2);
  return v;
}

TEST(ProvedDump, TheErrorsOfRealKernelsLieWithinTheirBounds) {
  for (const char* file : {"real_gdn_recurrent", "real_kda_chunk", "real_qdelta_chunk_0", "case_18", "case_02"}) {
    SCOPED_TRACE(file);
    const FileVerdict v = proved(file);
    ASSERT_TRUE(v.proof && v.proof->whole() && v.proof->sharp);
    EXPECT_NE(v.verdict, Verdict::untrusted) << v.reason;
    for (const Judged& t : v.outputs)
      if (const Proved* p = v.proof->find(t.tensor)) {
        EXPECT_LE(t.error, p->error.upper * (1 + 1e-9)) << t.tensor;
        EXPECT_LE(p->error.upper - p->error.lower, p->error.lower / 1000);
      }
  }
}

TEST(ProvedDump, AReferenceThatTheProofContradictsIsNotTrusted) {
  const std::string path = std::string(DELTAREF_DUMPS) + "/real_gdn_recurrent.safetensors";
  FileVerdict v = verify_file(path, {}, 2);
  ASSERT_EQ(v.verdict, Verdict::passed);
  v.outputs[0].error *= 1.01;  // as a reference would find it that is a hundredth of the error off
  prove_errors(v, {}, 2);
  EXPECT_EQ(v.verdict, Verdict::untrusted);
  EXPECT_THAT(v.reason, HasSubstr("the reference is wrong: the error of o is proved to lie between"));
}

TEST(ProvedDump, VectorsAreTheExactNumbersRounded) {
  for (const Vector& v : vectors()) {
    if (v.name == "gated_delta") continue;  // the large one
    SCOPED_TRACE(v.name);
    const Dump d = make_vector(v);
    const Proof proof = prove(Subject(d, {}), 0, 2);
    ASSERT_EQ(proof.outputs.size(), 2u);
    for (const Proved& t : proof.outputs) {
      EXPECT_EQ(t.not_rounded, 0) << t.tensor;
      EXPECT_EQ(t.rounded, t.elements) << t.tensor;
    }
  }
}

TEST(ProvedDump, OfALargeFileAStatedPartIsProved) {
  const Dump d = make_vector(vectors()[2]);  // two batch entries of four heads
  const Subject s(d, {});
  const Proof one = prove(s, 5, 1, 0.01);
  EXPECT_EQ(one.of_lanes, 8);
  EXPECT_LT(one.lanes, 8);
  EXPECT_GE(one.lanes, 1);
  EXPECT_FALSE(one.whole());
  const Proof few = prove(s, 5, 1, 1e-4);
  EXPECT_EQ(few.lanes, 1);
  EXPECT_LT(few.tokens, few.of_tokens);
  EXPECT_EQ(few.find("final_state"), nullptr) << "the state after all tokens was not computed";
  EXPECT_EQ(few.find("o")->elements, few.tokens * s.shape().d_v);
  EXPECT_THAT(proof_lines(few).back(), HasSubstr("1 of 8 heads of sequences, the worst first, the first "));
}

#endif

}  // namespace
}  // namespace delta
