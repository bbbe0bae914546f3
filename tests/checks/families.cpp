// SPDX-License-Identifier: Apache-2.0
// Every family is what it says: deterministic, 8 significant bits, and hard in the way its row claims.
#include "checks/core/families.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "checks/core/registry.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta {
namespace {

const RuleInfo& q_delta() { return find_rule("q_delta")->info; }

Size size_of(const Family& f, const char* text = "B1_T40_H2_HV4_K6_V4_N3_C8") {
  const Size z = Size::parse(text);
  return f.at ? f.at(z) : z;
}
Problem<double> drawn(const Family& f, std::uint64_t seed = 1) { return draw(q_delta(), f, size_of(f), seed); }

Vec<double> key(const Problem<double>& p, Index t, Index h = 0) { return p.k.row(0, t, h); }
bool all_tokens(const Problem<double>& p, auto property) {
  for (Index t = 0; t < p.shape.T; ++t)
    if (!property(t)) return false;
  return true;
}
bool constant(const Tensor<double>& x, double c) {
  return std::ranges::all_of(x.data, [&](double y) { return y == c; });
}
/// Sum of ln alpha over the tokens of one head, per chunk.
double log_decay_of_chunk(const Problem<double>& p) {
  double sum = 0;
  for (Index t = 0; t < p.shape.T; ++t) sum += std::log(*p.alpha.at(0, t, 0));
  return sum / static_cast<double>(p.shape.T) * 8;
}
bool unit(const Vec<double>& k) { return std::abs(k.norm() - 1) < 0x1p-7; }

using Property = bool (*)(const Problem<double>&);
const std::map<std::string_view, Property> kProperties{
    {"gate_half", [](auto& p) { return std::abs(log_decay_of_chunk(p) + 0.5) < 0.25 && unit(key(p, 3)); }},
    {"gate_weak", [](auto& p) { return std::abs(log_decay_of_chunk(p) + 0.08) < 0.04; }},
    {"gate_strong", [](auto& p) { return std::abs(log_decay_of_chunk(p) + 20) < 5; }},
    {"gate_one", [](auto& p) { return constant(p.alpha, 1); }},
    {"gate_masked",
     [](auto& p) {
       const auto ones = std::ranges::count(p.alpha.data, 1.0), all = std::ssize(p.alpha.data);
       return ones > all / 4 && ones < 3 * all / 4;
     }},
    {"gate_keep_or_clear",
     [](auto& p) {
       return std::ranges::count(p.alpha.data, 0.0) > 0 &&
              std::ranges::all_of(p.alpha.data, [](double a) { return a == 0 || a == 1; });
     }},
    {"alpha_zero", [](auto& p) { return *p.alpha.at(0, 3, 0) == 0 && *p.alpha.at(0, 4, 0) > 0; }},
    {"zero_channel", [](auto& p) { return std::ranges::count(p.alpha.data, 0.0) > 0; }},
    {"one_fast_channel", [](auto& p) { return constant(p.alpha, kBf16.round(std::exp(-6.))); }},
    {"gate_floor", [](auto& p) { return constant(p.alpha, kBf16.round(std::exp(-5.))); }},
    {"decay_underflow",
     [](auto& p) {
       float gamma = 1;  // of one chunk
       for (Index t = 0; t < 64; ++t) gamma *= static_cast<float>(*p.alpha.at(0, t, 0));
       return p.shape.T >= 64 && gamma == 0;
     }},
    {"heads_apart", [](auto& p) { return *p.alpha.at(0, 0, 0) >= 4 * *p.alpha.at(0, 0, p.shape.HV - 1); }},
    {"correlated_keys",
     [](auto& p) {
       return all_tokens(p, [&](Index t) { return unit(key(p, t)) && (t < 2 || key(p, 1).dot(key(p, t)) > 0.7); });
     }},
    {"repeated_keys",
     [](auto& p) { return constant(p.beta, 1) && all_tokens(p, [&](Index t) { return key(p, t) == key(p, 0); }); }},
    {"alternating_keys",
     [](auto& p) { return all_tokens(p, [&](Index t) { return t == 0 || key(p, t) == -key(p, t - 1); }); }},
    {"one_hot_keys",
     [](auto& p) { return all_tokens(p, [&](Index t) { return key(p, t).sum() == 1 && key(p, t).maxCoeff() == 1; }); }},
    {"zero_keys", [](auto& p) { return key(p, 1).isZero(0) && unit(key(p, 2)); }},
    {"tiny_keys", [](auto& p) { return key(p, 0).norm() > 0 && kFp16.round(key(p, 0).cwiseAbs2().minCoeff()) == 0; }},
    {"norm_ladder",
     [](auto& p) { return unit(key(p, 0)) && key(p, 3).norm() < 2e-4 && key(p, 3).norm() > 0 && key(p, 4).isZero(0); }},
    {"raw_keys", [](auto& p) { return key(p, 0).squaredNorm() + key(p, 1).squaredNorm() > 4; }},
    {"beta_zero", [](auto& p) { return constant(p.beta, 0); }},
    {"beta_one", [](auto& p) { return constant(p.beta, 1); }},
    {"beta_two", [](auto& p) { return std::ranges::max(p.beta.data) > 1.5 && std::ranges::max(p.beta.data) <= 2; }},
    {"reflections",
     [](auto& p) {
       return all_tokens(p, [&](Index t) { return *p.beta.at(0, t, 0) * key(p, t).squaredNorm() == 2; });
     }},
    {"small_writes", [](auto& p) { return std::ranges::max(p.beta.data) <= 1. / 256 && constant(p.alpha, 1); }},
    {"lambda_zero", [](auto& p) { return constant(p.lambda, 0); }},
    {"lambda_one", [](auto& p) { return constant(p.lambda, 1); }},
    {"values_wide",
     [](auto& p) {
       double least = INFINITY, most = 0;
       for (Index t = 0; t < p.shape.T; ++t)
         least = std::min(least, p.v.row(0, t, 0).norm()), most = std::max(most, p.v.row(0, t, 0).norm());
       return most > 1e3 * least;
     }},
    {"no_state", [](auto& p) { return p.S0.empty(); }},
    {"large_state", [](auto& p) { return p.S0[0].cwiseAbs().maxCoeff() > 65504; }},
    {"slack_nan",
     [](auto& p) {
       const auto& o = p.shape.offsets;
       return std::ranges::adjacent_find(o) != o.end() && std::isnan(p.v.row(0, p.shape.T - 1, 0)[0]) &&
              std::isnan(p.k.row(0, o.back(), 0)[0]) && std::isfinite(p.k.row(0, o.back() - 1, 0)[0]);
     }},
    {"growth",
     [](auto& p) {  // beta k.x = 1, so each error is corrected to 0, and with every second token the state doubles
       Vec<double> s = p.S0[0].row(0).transpose();
       const Vec<double> first = s;
       for (Index t = 0; t < 20; ++t) {
         const Vec<double> k = key(p, t), x = k + p.q.row(0, t, 0);
         const double beta = *p.beta.at(0, t, 0);
         if (beta * k.dot(x) != 1) return false;
         s -= beta * s.dot(x) * k;
       }
       return s == 1024 * first;
     }},
    {"signed_swap",
     [](auto& p) {
       const bool integers = std::ranges::all_of(p.v.data, [](double v) { return v == std::round(v); });
       return integers && p.scale == 1 && constant(p.beta, 1) &&
              all_tokens(p, [&](Index t) { return key(p, t).squaredNorm() == 2; });
     }},
};

class EveryFamily : public testing::TestWithParam<Family> {};

TEST_P(EveryFamily, HasThePropertyItClaims) {
  ASSERT_TRUE(kProperties.contains(GetParam().name)) << "a family needs a line in this test";
  EXPECT_TRUE(kProperties.at(GetParam().name)(drawn(GetParam()))) << GetParam().why;
}

TEST_P(EveryFamily, IsDeterministicAndDependsOnTheSeed) {
  const Problem<double> a = drawn(GetParam()), b = drawn(GetParam()), c = drawn(GetParam(), 2);
  auto bits = [](const Problem<double>& p) {
    std::vector<std::uint64_t> all;
    for (const Tensor<double>* x : {&p.q, &p.k, &p.v, &p.beta, &p.alpha, &p.lambda})
      for (const double y : x->data) all.push_back(std::bit_cast<std::uint64_t>(y));
    for (const Mat<double>& S : p.S0)
      for (const double y : S.reshaped()) all.push_back(std::bit_cast<std::uint64_t>(y));
    return all;
  };
  EXPECT_EQ(bits(a), bits(b));
  EXPECT_NE(bits(a), bits(c));
}

TEST_P(EveryFamily, HasEightSignificantBitsInEveryRule) {
  for (const Rule* rule : rules()) {
    const Problem<double> p = draw(rule->info, GetParam(), size_of(GetParam()), 1);
    auto exact = [](double x) { return std::isnan(x) || kBf16.round(x) == x; };
    for (const Tensor<double>* x : {&p.q, &p.k, &p.v, &p.beta, &p.alpha, &p.lambda})
      EXPECT_TRUE(std::ranges::all_of(x->data, exact));
    for (const Tensor<double>& x : p.inputs) EXPECT_TRUE(std::ranges::all_of(x.data, exact));
    for (const Mat<double>& S : p.S0) EXPECT_TRUE(std::ranges::all_of(S.reshaped(), exact));
    EXPECT_TRUE(exact(p.scale));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryFamily, testing::ValuesIn(families().begin(), families().end()),
                         [](const auto& f) { return std::string(f.param.name); });

TEST(Families, AreManyAndNamedOnce) {
  std::set<std::string_view> names, reasons;
  for (const Family& f : families()) names.insert(f.name), reasons.insert(f.why);
  EXPECT_GE(names.size(), 20u);
  EXPECT_EQ(names.size(), families().size());
  EXPECT_EQ(reasons.size(), families().size());
  EXPECT_EQ(kProperties.size(), families().size());
}

TEST(Families, HeadsDifferInEverything) {
  const Problem<double> p = drawn(families()[0]);
  EXPECT_NE(key(p, 0, 0), key(p, 0, 1));
  EXPECT_NE(*p.alpha.at(0, 0, 0), *p.alpha.at(0, 0, 1));
  EXPECT_NE(*p.beta.at(0, 0, 2), *p.beta.at(0, 0, 3));
  EXPECT_NE(p.S0[0], p.S0[1]);
}

TEST(Sizes, AreReadBackFromWhatIsPrinted) {
  for (const SweepRow& row : sweep())
    EXPECT_EQ(Size::parse(row.size).text(), Size::parse(Size::parse(row.size).text()).text());
  const Size z = Size::parse("B1_T24_H1_HV2_K5_V3_N2_packed0.5.5.16.21_C8");
  EXPECT_EQ(z.text(), "B1_T24_H1_HV2_K5_V3_N2_packed0.5.5.16.21_C8");
  EXPECT_EQ(z.shape.offsets, (std::vector<Index>{0, 5, 5, 16, 21}));
  EXPECT_EQ(Size::parse("T65_C16_K8_V12").text(), "B1_T65_H1_HV1_K8_V12_C16");
}

TEST(Sizes, RefuseWhatMakesNoSense) {
  for (const char* bad :
       {"", "T", "T-1", "T5x", "X5", "T5_T6", "K0", "H2_HV3", "C0", "T99999999999", "T9_packed0.5.4", "T9_packed0.10",
        "T9_packed3", "B2_T9_packed0.9", "T1048576_K1048576", "T5__K3", "T9_packed0..9"})
    EXPECT_THROW(Size::parse(bad), std::invalid_argument) << bad;
}

TEST(Sizes, CoverTheSweep) {
  std::set<Index> T;
  std::set<std::pair<Index, Index>> heads;
  bool wide = false, tall = false, empty_segment = false, slack = false;
  for (const SweepRow& row : sweep()) {
    const Shape s = Size::parse(row.size).shape;
    T.insert(s.T), heads.insert({s.H, s.HV});
    wide |= s.d_k > s.d_v, tall |= s.d_k < s.d_v;
    empty_segment |= std::ranges::adjacent_find(s.offsets) != s.offsets.end();
    slack |= !s.offsets.empty() && s.offsets.back() < s.T;
  }
  for (const Index t : {0, 1, 2, 5, 7, 8, 9, 13, 18, 63, 65, 130}) EXPECT_TRUE(T.contains(t)) << t;
  for (const auto& h : {std::pair<Index, Index>{1, 1}, {2, 2}, {2, 6}, {4, 8}}) EXPECT_TRUE(heads.contains(h));
  EXPECT_TRUE(wide && tall && empty_segment && slack);
}

}  // namespace
}  // namespace delta
