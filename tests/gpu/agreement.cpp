// SPDX-License-Identifier: Apache-2.0
// The judge of agreement on stand-ins for a kernel: its schedule, with factors that are wrong in the last bits of fp32
// agrees; with a rounding to 16 bits left out, or one to bf16 in the place of tf32, it does not.
#include <gtest/gtest.h>

#include "checks/gpu/judges.hpp"
#include "gpu/schedule/hopper.hpp"

namespace delta::gpu {
namespace {

/// Which rounding is left out, or is one to bf16 and not tf32; rounded_X: as v5 has it, in v7. None: a right kernel.
enum class Wrong { none, T, W, P, S, E, written, coarse_A, coarse_L, coarse_R, coarse_E, rounded_X };
const char* name(Wrong what) {
  constexpr const char* names[] = {"none",    "T",        "W",        "P",        "S",        "E",
                                   "written", "coarse A", "coarse L", "coarse R", "coarse E", "rounded X"};
  return names[static_cast<std::size_t>(what)];
}

/// x times numbers that are 1 to within 2^-22, as 2^x is in fp32. What is a power of two is exact, as 1 without decay.
Mat<double> wrong_in_the_last_bits(const Mat<double>& x, Random& random) {
  return x.unaryExpr([&](double y) {
    int exponent = 0;
    const bool exact = std::abs(std::frexp(y, &exponent)) == 0.5;
    return exact ? y : y * (1 + std::ldexp(random.uniform(-1, 1), -22));
  });
}

/// A chunk as the stand-in prepares it.
Prepared<double> prepared(const Head<double>& head, Index begin, Solve solve, const SixteenBits& round, Wrong what,
                          Random& random) {
  Prepared<double> p = prepare(head, begin, solve, {}, round);
  const Prepared<double> exact = prepare(head, begin, solve, {}, Exact{});
  if (what == Wrong::T) p.T = exact.T;
  if (what == Wrong::W) p.W = exact.W;
  if (what == Wrong::P) p.P = exact.P;
  if (what == Wrong::rounded_X) {
    const Prepared<double> rounded = prepare(head, begin, Solve::beforehand, {}, round);
    p.A = rounded.A, p.L = rounded.L, p.share = rounded.share;
  }
  for (Vec<double>* const x : {&p.write, &p.output, &p.read}) *x = wrong_in_the_last_bits(*x, random);
  p.L = wrong_in_the_last_bits(p.L, random);  // A is rounded already
  return p;
}

/// E of a chain that solves, from S rounded or not: `errors` written out again, for each of its roundings can be wrong.
Mat<double> solved(const Mat<double>& S, const Prepared<double>& p, const SixteenBits& round, Wrong what) {
  const auto tf32 = [&](Wrong coarse, const Mat<double>& M) -> Mat<double> {
    return what == coarse ? SixteenBits{kBf16}.operand(M) : round.tf32(M);
  };
  Mat<double> X = p.K + p.share.asDiagonal() * p.Q;
  if (what == Wrong::rounded_X) X = round.operand(X);
  Mat<double> R = p.V - p.read.asDiagonal() * Mat<double>(X * S.transpose()), E = R;
  for (Index i = 0; i < R.rows(); i += p.square) {
    const Index n = std::min(p.square, R.rows() - i), left = R.rows() - i - n;
    E.middleRows(i, n) = tf32(Wrong::coarse_A, p.A.block(i, i, n, n)) * tf32(Wrong::coarse_R, R.middleRows(i, n));
    R.bottomRows(left) -=
        tf32(Wrong::coarse_L, p.L.block(i + n, i, left, n)) * tf32(Wrong::coarse_E, E.middleRows(i, n));
  }
  return E;
}

/// What a kernel of that version would have returned, one segment. \param seed  of what is wrong in the last bits
Answer stand_in(const Case& c, std::int32_t version, const Format& f, Wrong what, std::uint64_t seed) {
  const SixteenBits round{f};
  const auto unless = [&](Wrong it, const Mat<double>& M) -> Mat<double> { return what == it ? M : round.operand(M); };
  const Shape& z = c.shape();
  Random random(seed);
  Answer a;
  a.plan.chunk = 64, a.plan.version = version, a.plan.segments = 1;
  const Solve solve = solve_of(a.plan);
  std::vector<double>& states = a.traces["S"];
  const auto place = [&](Index n, Index h, Index chunk) {
    const Index first = z.offsets.empty() ? n * z.T : z.begin(n);
    return ((first / 64 + n + chunk) * z.HV + h) * z.d_v * z.d_k;
  };
  for (Index n = 0; n < z.sequences(); ++n)
    for (Index h = 0; h < z.HV; ++h) {
      const Head<double> head = c.head(n, h);
      Output<double> own{Mat<double>(head.tokens(), z.d_v), head.S0};
      for (Index begin = 0; begin < head.tokens(); begin += 64) {
        const Prepared<double> p = prepared(head, begin, solve, round, what, random);
        const Mat<double> S = unless(Wrong::S, own.S);
        const Mat<double> E =
            solve == Solve::beforehand ? Mat<double>(p.T * p.V - p.W * S.transpose()) : solved(S, p, round, what);
        own.O.middleRows(begin, E.rows()) =
            round.operand(p.output.asDiagonal() * Mat<double>(p.Q * S.transpose()) + p.P * unless(Wrong::E, E));
        own.S =
            p.gamma[p.gamma.size() - 1] * own.S + unless(Wrong::written, p.write.asDiagonal() * E).transpose() * p.K;
        const Index at = place(n, h, begin / 64);
        states.resize(std::max(states.size(), static_cast<std::size_t>(at + z.d_v * z.d_k)));
        for (Index i = 0; i < z.d_v; ++i)
          for (Index j = 0; j < z.d_k; ++j) states[static_cast<std::size_t>(at + i * z.d_k + j)] = own.S(i, j);
      }
      a.result.push_back(own);
    }
  return a;
}

std::vector<Row> judged(const Case& c, Model& model, std::int32_t version, std::int32_t dtype, Wrong what,
                        std::uint64_t seed = 1) {
  std::vector<Row> rows;
  judge_agreement(c, model, c.call(version, dtype), stand_in(c, version, format_of(dtype), what, seed),
                  [&](const Row& r) { rows.push_back(r); });
  return rows;
}
double largest(const Case& c, std::int32_t version, Wrong what, std::int32_t dtype = DELTAREF_BF16) {
  Model model(c);
  double ratio = 0;
  for (const Row& r : judged(c, model, version, dtype, what)) ratio = std::max(ratio, r.ratio);
  return ratio;
}

constexpr std::string_view kWhole = "B1_T130_H1_HV1_K64_V64_C64", kShort = "B1_T80_H1_HV2_K64_V64_packed0.5.5.69_C64";

/// One of each way to solve for the errors.
constexpr std::int32_t kVersions[] = {DELTAREF_V5, DELTAREF_V7};

class Agreement : public testing::TestWithParam<std::tuple<std::string_view, std::int32_t>> {
 protected:
  const Rule& rule = *find_rule(std::get<0>(GetParam()));
  const std::int32_t version = std::get<1>(GetParam());

  void expect_none_failed(const char* family, std::string_view size, Variant variant) const {
    if (!find_family(family)->concerns(rule.info)) return;
    const Case c(rule, *find_family(family), Size::parse(size), 1, variant);
    Model model(c);
    int passed = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
      for (const std::int32_t dtype : {DELTAREF_BF16, DELTAREF_FP16})
        for (const Row& r : judged(c, model, version, dtype, Wrong::none, seed)) {
          EXPECT_TRUE(r.verdict == Verdict::passed || r.verdict == Verdict::untrusted)
              << family << " " << size << " seed " << seed << " " << r.dtype << " " << r.what << ": " << r.ratio;
          passed += r.verdict == Verdict::passed;
        }
    EXPECT_GT(passed, 0) << family << " " << size;
  }
};

TEST_P(Agreement, IsSeenWhereTheKernelIsRight) {
  expect_none_failed("gate_half", kWhole, Variant::plain);
  expect_none_failed("repeated_keys", kWhole, Variant::plain);
  expect_none_failed("gate_half", kWhole, Variant::log_gate);
}

INSTANTIATE_TEST_SUITE_P(Rules, Agreement,
                         testing::Combine(testing::Values("retnet", "mamba2", "delta", "gated_delta", "q_delta"),
                                          testing::ValuesIn(kVersions)),
                         [](const auto& which) {
                           return std::string(std::get<0>(which.param)) + "_v" +
                                  std::to_string(std::get<1>(which.param));
                         });

TEST(AgreementFails, WhereARoundingIsLeftOut) {  // in bf16, with moderate gates
  const Case c(*find_rule("gated_delta"), *find_family("gate_half"), Size::parse(kWhole), 1);
  for (const Wrong what : {Wrong::T, Wrong::W, Wrong::P, Wrong::S, Wrong::E, Wrong::written})
    EXPECT_GT(largest(c, DELTAREF_V5, what), 2) << "left out: " << name(what);
  for (const Wrong what : {Wrong::P, Wrong::S, Wrong::E, Wrong::written})
    EXPECT_GT(largest(c, DELTAREF_V7, what), 2) << "left out, v7: " << name(what);
}

TEST(AgreementFails, WhereXIsRoundedThoughTheChainSolves) {
  const Case c(*find_rule("q_delta"), *find_family("gate_half"), Size::parse(kWhole), 1);
  EXPECT_GT(largest(c, DELTAREF_V7, Wrong::rounded_X), 2);
}

TEST(AgreementFails, WhereBf16StandsForTf32) {
  const Case c(*find_rule("gated_delta"), *find_family("gate_half"), Size::parse(kWhole), 1);
  for (const Wrong what : {Wrong::coarse_A, Wrong::coarse_L, Wrong::coarse_R, Wrong::coarse_E})
    for (const std::int32_t dtype : {DELTAREF_BF16, DELTAREF_FP16})
      EXPECT_GT(largest(c, DELTAREF_V7, what, dtype), 2) << name(what) << " type " << dtype;
}

/// Products of numbers of few bits lie in the middle between two neighbours by the dozen. They excuse no missing
/// rounding.
TEST(AgreementFails, AmongTiesToo) {
  for (const char* rule : {"retnet", "mamba2"}) {
    const Case c(*find_rule(rule), *find_family("alpha_zero"), Size::parse(kShort), 1, Variant::log_gate);
    for (const std::int32_t version : kVersions)
      EXPECT_GT(largest(c, version, Wrong::written), 2) << rule << " v" << version;
  }
}

}  // namespace
}  // namespace delta::gpu
