// SPDX-License-Identifier: Apache-2.0
// The judge of agreement on stand-ins for a kernel: its schedule, with factors that are wrong in the last bits of fp32
// agrees; with a rounding to 16 bits left out it does not.
#include <gtest/gtest.h>

#include "checks/gpu/judges.hpp"
#include "gpu/schedule/hopper.hpp"

namespace delta::gpu {
namespace {

/// Which rounding is left out. None: a right kernel.
enum class Unrounded { none, T, W, P, S, E, written };

/// x times numbers that are 1 to within 2^-22, as 2^x is in fp32.
Vec<double> wrong_in_the_last_bits(const Vec<double>& x, Random& random) {
  return x.unaryExpr([&](double y) { return y * (1 + std::ldexp(random.uniform(-1, 1), -22)); });
}

/// A chunk as the stand-in prepares it.
Prepared<double> prepared(const Head<double>& head, Index begin, const SixteenBits& round, Unrounded what,
                          Random& random) {
  Prepared<double> p = prepare(head, begin, {}, round);
  const Prepared<double> exact = prepare(head, begin, {}, Exact{});
  if (what == Unrounded::T) p.T = exact.T;
  if (what == Unrounded::W) p.W = exact.W;
  if (what == Unrounded::P) p.P = exact.P;
  p.write = wrong_in_the_last_bits(p.write, random), p.output = wrong_in_the_last_bits(p.output, random);
  return p;
}

/// What a kernel would have returned, one segment. \param seed  of what is wrong in the last bits
Answer stand_in(const Case& c, const Format& f, Unrounded what, std::uint64_t seed) {
  const SixteenBits round{f};
  const auto unless = [&](Unrounded it, const Mat<double>& M) -> Mat<double> {
    return what == it ? M : round.operand(M);
  };
  const Shape& z = c.shape();
  Random random(seed);
  Answer a;
  a.plan.chunk = 64, a.plan.version = DELTAREF_V5, a.plan.segments = 1;
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
        const Prepared<double> p = prepared(head, begin, round, what, random);
        const Mat<double> S = unless(Unrounded::S, own.S), E = p.T * p.V - p.W * S.transpose();
        own.O.middleRows(begin, E.rows()) =
            round.operand(p.output.asDiagonal() * Mat<double>(p.Q * S.transpose()) + p.P * unless(Unrounded::E, E));
        own.S = p.gamma[p.gamma.size() - 1] * own.S +
                unless(Unrounded::written, p.write.asDiagonal() * E).transpose() * p.K;
        const Index at = place(n, h, begin / 64);
        states.resize(std::max(states.size(), static_cast<std::size_t>(at + z.d_v * z.d_k)));
        for (Index i = 0; i < z.d_v; ++i)
          for (Index j = 0; j < z.d_k; ++j) states[static_cast<std::size_t>(at + i * z.d_k + j)] = own.S(i, j);
      }
      a.result.push_back(own);
    }
  return a;
}

std::vector<Row> judged(const Case& c, Model& model, std::int32_t dtype, Unrounded what, std::uint64_t seed = 1) {
  std::vector<Row> rows;
  judge_agreement(c, model, c.call(DELTAREF_V5, dtype), stand_in(c, format_of(dtype), what, seed),
                  [&](const Row& r) { rows.push_back(r); });
  return rows;
}
double largest(const Case& c, Unrounded what) {
  Model model(c);
  double ratio = 0;
  for (const Row& r : judged(c, model, DELTAREF_BF16, what)) ratio = std::max(ratio, r.ratio);
  return ratio;
}

constexpr std::string_view kWhole = "B1_T130_H1_HV1_K64_V64_C64", kShort = "B1_T80_H1_HV2_K64_V64_packed0.5.5.69_C64";

class Agreement : public testing::TestWithParam<std::string_view> {
 protected:
  const Rule& rule = *find_rule(GetParam());

  void expect_none_failed(const char* family, std::string_view size, Variant variant) const {
    if (!find_family(family)->concerns(rule.info)) return;
    const Case c(rule, *find_family(family), Size::parse(size), 1, variant);
    Model model(c);
    int passed = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
      for (const std::int32_t dtype : {DELTAREF_BF16, DELTAREF_FP16})
        for (const Row& r : judged(c, model, dtype, Unrounded::none, seed)) {
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

INSTANTIATE_TEST_SUITE_P(Rules, Agreement, testing::Values("retnet", "mamba2", "delta", "gated_delta", "q_delta"),
                         [](const auto& rule) { return std::string(rule.param); });

TEST(AgreementFails, WhereARoundingIsLeftOut) {  // in bf16, with moderate gates
  const Case c(*find_rule("gated_delta"), *find_family("gate_half"), Size::parse(kWhole), 1);
  for (const Unrounded what :
       {Unrounded::T, Unrounded::W, Unrounded::P, Unrounded::S, Unrounded::E, Unrounded::written})
    EXPECT_GT(largest(c, what), 2) << "left out: " << static_cast<int>(what);
}

/// Products of numbers of few bits lie in the middle between two neighbours by the dozen. They excuse no missing
/// rounding.
TEST(AgreementFails, AmongTiesToo) {
  for (const char* rule : {"retnet", "mamba2"}) {
    const Case c(*find_rule(rule), *find_family("alpha_zero"), Size::parse(kShort), 1, Variant::log_gate);
    EXPECT_GT(largest(c, Unrounded::written), 2) << rule;
  }
}

}  // namespace
}  // namespace delta::gpu
