// SPDX-License-Identifier: Apache-2.0
// Every rule: its micro-steps and the formula as its source prints it are the same function, exactly. Then the laws
// that tie the rules to each other, and hand values. All with ==.
#include <gtest/gtest.h>

#include <functional>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"

namespace delta {
namespace {

class EveryRule : public testing::TestWithParam<const Rule*> {
 protected:
  Shape shape{.B = 1, .T = 5, .H = 1, .HV = 2, .d_k = 4, .d_v = 3, .n_h = 3, .offsets = {}};
  Problem<double> like = draw(GetParam()->info, families()[0], shape, 1);

  template <Ring T> void steps_equal_paper_step() const {
    const Problem<T> p = generic<T>(like, 7);
    const Result<T> want = compute_paper<T>(*GetParam(), p), got = compute<T>(*GetParam(), "recurrent", 1, p);
    ASSERT_EQ(want.size(), got.size());
    for (std::size_t lane = 0; lane < want.size(); ++lane) {
      EXPECT_TRUE(want[lane].O == got[lane].O) << "output of lane " << lane;
      EXPECT_TRUE(want[lane].S == got[lane].S) << "state of lane " << lane;
    }
  }
};

TEST_P(EveryRule, StepsEqualPaperStepOverTheRationals) { steps_equal_paper_step<Rational>(); }
TEST_P(EveryRule, StepsEqualPaperStepOverAPrimeField) { steps_equal_paper_step<GF61>(); }
TEST_P(EveryRule, StepsEqualPaperStepInTheirDerivatives) { steps_equal_paper_step<Dual<GF61>>(); }

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, testing::ValuesIn(rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

// ---- One rule is a special case of another: at a random point of GF(2^61 - 1), every output and the final state. ----

class SpecialCase : public testing::Test {
 protected:
  static constexpr Index n_h = 3;
  Shape shape{.B = 2, .T = 5, .H = 1, .HV = 2, .d_k = 4, .d_v = 3, .n_h = 1, .offsets = {}};
  Random random{11};

  Tensor<GF61> fill(Index heads, Index cols, Index rows = 1) {
    Tensor<GF61> x(shape.B, shape.T, heads, cols, rows);
    for (GF61& e : x.data) e = GF61::from_residue(random.bits() >> 3);
    return x;
  }
  /// The tensor whose every entry is a function of the entry of another: a copy with wider rows, say.
  static Tensor<GF61> map(const Tensor<GF61>& x, Index cols, const std::function<GF61(const GF61* row, Index c)>& f) {
    Tensor<GF61> y(x.B, x.tokens, x.heads, cols);
    for (std::size_t r = 0; r < y.data.size() / cols; ++r)
      for (Index c = 0; c < cols; ++c) y.data[r * cols + c] = f(x.data.data() + r * x.cols, c);
    return y;
  }
  static Tensor<GF61> wide(const Tensor<GF61>& x, Index cols) {
    return map(x, cols, [](const GF61* row, Index) { return row[0]; });
  }
  static Tensor<GF61> product(Tensor<GF61> x, const Tensor<GF61>& y) {
    for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] *= y.data[i];
    return x;
  }
  /// A tensor of the key heads as the value heads see it.
  Tensor<GF61> per_value_head(const Tensor<GF61>& x) const {
    Tensor<GF61> y(x.B, x.tokens, shape.HV, x.cols);
    for (Index b = 0; b < x.B; ++b)
      for (Index t = 0; t < x.tokens; ++t)
        for (Index j = 0; j < shape.HV; ++j) std::copy_n(x.at(b, t, shape.key_head(j)), x.cols, y.at(b, t, j));
    return y;
  }

  /// q, k, v, S_0 and the scale: what every rule takes.
  Problem<GF61> bare() {
    Problem<GF61> p{.shape = shape};
    p.q = fill(shape.H, shape.d_k), p.k = fill(shape.H, shape.d_k), p.v = fill(shape.HV, shape.d_v);
    for (Index lane = 0; lane < shape.B * shape.HV; ++lane)
      p.S0.push_back(
          Mat<GF61>::NullaryExpr(shape.d_v, shape.d_k, [&] { return GF61::from_residue(random.bits() >> 3); }));
    p.scale = GF61(5);
    return p;
  }
  Problem<GF61> gated() {
    Problem<GF61> p = bare();
    p.alpha = fill(shape.HV, 1), p.beta = fill(shape.HV, 1);
    return p;
  }

  static bool same(const Result<GF61>& a, const Result<GF61>& b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.O == y.O && x.S == y.S; });
  }
  static Result<GF61> result(std::string_view rule, const Problem<GF61>& p) {
    const Rule& r = *find_rule(rule);
    const Result<GF61> steps = compute<GF61>(r, "one_solve", 3, p);
    EXPECT_TRUE(same(steps, compute_paper<GF61>(r, p))) << rule;
    return steps;
  }
  static void equal(std::string_view rule, const Problem<GF61>& p, std::string_view other, const Problem<GF61>& r) {
    EXPECT_TRUE(same(result(rule, p), result(other, r))) << rule << " against " << other;
  }
  static void differ(std::string_view rule, const Problem<GF61>& p, std::string_view other, const Problem<GF61>& r) {
    EXPECT_FALSE(same(result(rule, p), result(other, r))) << rule << " against " << other;
  }
};

TEST_F(SpecialCase, WithoutDecay) {
  Problem<GF61> p = bare();
  equal("mamba2", p, "linear", p);
  equal("retnet", p, "linear", p);
  equal("gla", p, "linear", p);
  p.beta = fill(shape.HV, 1);
  equal("gated_delta", p, "delta", p);
  equal("comba", p, "delta", p);  // p = k and D = 0, which is what stands in for them
  equal("kda", p, "delta", p);
}

TEST_F(SpecialCase, QDeltaWithLambdaZeroIsGatedDelta) {  // F73
  Problem<GF61> p = gated();
  equal("q_delta", p, "gated_delta", p);
  p.lambda = Tensor<GF61>(shape.B, shape.T, shape.HV, 1);
  equal("q_delta", p, "gated_delta", p);
  p.lambda = fill(shape.HV, 1);
  differ("q_delta", p, "gated_delta", p);
}

TEST_F(SpecialCase, EqualChannelsAreOneNumber) {
  const Problem<GF61> p = gated();
  Problem<GF61> channels = p;
  channels.alpha = wide(p.alpha, shape.d_k);
  equal("kda", channels, "gated_delta", p);
  equal("gla", channels, "mamba2", p);
  equal("kda", p, "gated_delta", p);  // one number is taken as equal channels
  channels.beta = wide(p.beta, shape.d_v);
  channels.alpha = p.alpha;
  equal("gated_delta_channel", channels, "gated_delta", p);
  equal("gated_delta_channel", p, "gated_delta", p);
}

TEST_F(SpecialCase, BetaPerValueChannelIsOneRuleAChannel) {  // F61
  Problem<GF61> p = gated();
  p.beta = fill(shape.HV, shape.d_v);
  const Result<GF61> all = result("gated_delta_channel", p);
  for (Index c = 0; c < shape.d_v; ++c) {
    Problem<GF61> one = p;
    one.beta = map(p.beta, 1, [c](const GF61* row, Index) { return row[c]; });
    const Result<GF61> got = result("gated_delta", one);
    for (std::size_t lane = 0; lane < all.size(); ++lane) EXPECT_TRUE(got[lane].S.row(c) == all[lane].S.row(c));
  }
}

TEST_F(SpecialCase, Comba) {
  const Problem<GF61> p = gated();
  const Tensor<GF61> k = per_value_head(p.k);
  Problem<GF61> c = p;
  differ("comba", p, "gated_delta", p);  // it reads before the decay
  c.inputs = {product(wide(p.alpha, shape.d_k), k)};
  equal("comba", c, "gated_delta", p);  // S (alpha k) = (alpha S) k
  c.inputs = {fill(shape.HV, shape.d_k), {}};
  const Result<GF61> without = result("comba", c);
  c.inputs[1] = fill(shape.HV, 1);
  const Result<GF61> corrected = result("comba", c);
  for (std::size_t lane = 0; lane < without.size(); ++lane) {
    EXPECT_TRUE(without[lane].S == corrected[lane].S);  // D acts on the output only
    EXPECT_FALSE(without[lane].O == corrected[lane].O);
  }
}

TEST_F(SpecialCase, Gdn2WithOneGateIsKda) {
  Problem<GF61> p = gated();
  p.alpha = fill(shape.HV, shape.d_k);
  Problem<GF61> gates = p;
  gates.beta = {};
  gates.inputs = {wide(p.beta, shape.d_k), wide(p.beta, shape.d_v)};
  equal("gdn2", gates, "kda", p);
  gates.inputs = {}, p.beta = {};  // open gates: beta = 1
  equal("gdn2", gates, "kda", p);
}

TEST_F(SpecialCase, DeltaProduct) {
  const Problem<GF61> p = gated();
  equal("delta_product", p, "gated_delta", p);  // n_h = 1
  Problem<GF61> many = p;
  many.shape.n_h = n_h;
  many.inputs = {fill(shape.HV, shape.d_k, n_h - 1), fill(shape.HV, shape.d_v, n_h - 1), {}};
  many.inputs[2] = Tensor<GF61>(shape.B, shape.T, shape.HV, 1, n_h - 1);
  equal("delta_product", many, "gated_delta", p);  // steps of strength 0
  many.inputs[2] = {};
  differ("delta_product", many, "gated_delta", p);

  // Two micro-steps a token are gated delta over twice as many tokens, every second of which does not decay.
  Problem<GF61> two = p, twice = p;
  two.shape.n_h = 2;
  two.k = fill(shape.HV, shape.d_k), two.q = per_value_head(p.q), two.shape.H = shape.HV;
  two.inputs = {fill(shape.HV, shape.d_k), fill(shape.HV, shape.d_v), fill(shape.HV, 1)};
  auto interleave = [&](const Tensor<GF61>& a, const Tensor<GF61>& b) {
    Tensor<GF61> x(a.B, 2 * a.tokens, a.heads, a.cols);
    for (Index n = 0; n < a.B; ++n)
      for (Index t = 0; t < a.tokens; ++t)
        for (Index j = 0; j < a.heads; ++j)
          std::copy_n(a.at(n, t, j), a.cols, x.at(n, 2 * t, j)),
              std::copy_n(b.at(n, t, j), a.cols, x.at(n, 2 * t + 1, j));
    return x;
  };
  Tensor<GF61> ones(shape.B, shape.T, shape.HV, 1);
  std::ranges::fill(ones.data, GF61(1));
  twice.shape.T = 2 * shape.T, twice.shape.H = shape.HV;
  twice.q = interleave(two.q, two.q), twice.k = interleave(two.k, two.inputs[0]);
  twice.v = interleave(two.v, two.inputs[1]), twice.beta = interleave(two.beta, two.inputs[2]);
  twice.alpha = interleave(two.alpha, ones);
  const Result<GF61> a = result("delta_product", two), b = result("gated_delta", twice);
  for (std::size_t lane = 0; lane < a.size(); ++lane) {
    EXPECT_TRUE(a[lane].S == b[lane].S);
    for (Index t = 0; t < shape.T; ++t) EXPECT_TRUE(a[lane].O.row(t) == b[lane].O.row(2 * t + 1));
  }
}

TEST_F(SpecialCase, Rwkv7) {
  Problem<GF61> p = bare(), r = p;
  p.alpha = r.alpha = fill(shape.HV, shape.d_k);
  equal("rwkv7", r, "gla", p);  // no removal key

  // KDA is diagonal plus rank one: kappa = alpha . k, a = beta / alpha, and beta v is what is written.
  p.beta = fill(shape.HV, 1);
  const Tensor<GF61> beta = wide(p.beta, shape.d_k);
  Tensor<GF61> a = beta;
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] /= p.alpha.data[i];
  r.inputs = {a, product(p.alpha, per_value_head(p.k))};
  r.v = product(p.v, wide(p.beta, shape.d_v));
  equal("rwkv7", r, "kda", p);
  r.alpha = p.alpha = {};
  r.inputs = {beta, per_value_head(p.k)};
  equal("rwkv7", r, "delta", p);
}

TEST_F(SpecialCase, PreconditionedWithTheKeyItselfIsKda) {
  Problem<GF61> p = gated();
  equal("precond_delta", p, "gated_delta", p);
  p.alpha = fill(shape.HV, shape.d_k);
  equal("precond_delta", p, "kda", p);
  Problem<GF61> write = p;
  write.inputs = {fill(shape.HV, shape.d_k)};
  differ("precond_delta", write, "kda", p);
}

TEST_F(SpecialCase, Mamba3WithoutThePreviousPairIsMamba2) {
  Problem<GF61> p = bare();
  p.alpha = fill(shape.HV, 1);
  equal("mamba3", p, "mamba2", p);
  Problem<GF61> m = p;
  m.inputs = {fill(shape.HV, shape.d_k), fill(shape.HV, shape.d_v), {}, {}};
  equal("mamba3", m, "mamba2", p);  // strength_prev = 0
  m.inputs[3] = fill(shape.HV, 1);
  Problem<GF61> scaled = p;
  scaled.v = product(p.v, wide(m.inputs[3], shape.d_v));
  equal("mamba3", m, "mamba2", scaled);  // the strength is a factor of v
}

TEST_F(SpecialCase, Kaczmarz) {  // F22: with beta = 1/|k|^2 the last key reads back its value
  Problem<GF61> p = bare();
  p.beta = map(per_value_head(p.k), 1, [&](const GF61* k, Index) {
    GF61 n(0);
    for (Index i = 0; i < shape.d_k; ++i) n += k[i] * k[i];
    return GF61(1) / n;
  });
  const Result<GF61> r = result("delta", p);
  for (Index n = 0; n < shape.B; ++n)
    for (Index j = 0; j < shape.HV; ++j) {
      const Mat<GF61>& S = r[static_cast<std::size_t>(n * shape.HV + j)].S;
      EXPECT_TRUE(S * p.k.row(n, shape.T - 1, shape.key_head(j)) == p.v.row(n, shape.T - 1, j));
    }
}

// ---- Hand values ----

/// S after one or two tokens of one head, S_0 = 0 unless given, and the last output.
struct Hand {
  Problem<Rational> p{.shape = {.B = 1, .T = 1, .H = 1, .HV = 1, .d_k = 1, .d_v = 1, .n_h = 1, .offsets = {}}};

  explicit Hand(Index T, Index d_k = 1, Index d_v = 1) { p.shape.T = T, p.shape.d_k = d_k, p.shape.d_v = d_v; }
  Tensor<Rational> row(std::initializer_list<int> x, Index rows = 1) const {
    Tensor<Rational> y(1, p.shape.T, 1, static_cast<Index>(x.size()) / p.shape.T / rows, rows);
    std::ranges::copy(x, y.data.begin());
    return y;
  }
  Output<Rational> operator()(std::string_view rule) const {
    const Output<Rational> steps = compute<Rational>(*find_rule(rule), "recurrent", 1, p).front();
    const Output<Rational> paper = compute_paper<Rational>(*find_rule(rule), p).front();
    EXPECT_TRUE(steps.S == paper.S && steps.O == paper.O) << rule;
    return steps;
  }
  Rational S(std::string_view rule) const { return (*this)(rule).S(0, 0); }
  Rational o(std::string_view rule) const { return (*this)(rule).O(p.shape.T - 1, 0); }
};

TEST(HandValues, OneNumberOneToken) {  // S_0 = 2, alpha = 3, beta = 5, k = 7, v = 11, q = 2, lambda = 4
  Hand h(1);
  h.p.q = h.row({2}), h.p.k = h.row({7}), h.p.v = h.row({11});
  h.p.S0 = {Mat<Rational>::Constant(1, 1, Rational(2))};
  EXPECT_EQ(h.S("linear"), 2 + 77);
  h.p.alpha = h.row({3});
  for (const char* rule : {"mamba2", "retnet", "gla", "mamba3", "rwkv7"}) EXPECT_EQ(h.S(rule), 6 + 77) << rule;
  EXPECT_EQ(h.o("mamba2"), 2 * 83);
  h.p.beta = h.row({5});
  EXPECT_EQ(h.S("delta"), 2 + 5 * (11 - 2 * 7) * 7);
  for (const char* rule : {"gated_delta", "kda", "gated_delta_channel", "precond_delta", "delta_product"})
    EXPECT_EQ(h.S(rule), 6 + 5 * (11 - 6 * 7) * 7) << rule;
  EXPECT_EQ(h.S("comba"), 6 + 5 * (11 - 2 * 7) * 7);  // 2, not 6: read before the decay
  h.p.lambda = h.row({4});
  EXPECT_EQ(h.S("q_delta"), 6 + 5 * (11 - 6 * (7 + 4 * 2)) * 7);
  h.p.inputs = {h.row({9}), h.row({13})};
  EXPECT_EQ(h.S("comba"), 6 + 5 * (11 - 2 * 9) * 7);                   // p = 9
  EXPECT_EQ(h.o("comba"), (6 + 5 * (11 - 2 * 9) * 7) * (2 - 13 * 9));  // D = 13
  EXPECT_EQ(h.S("gdn2"), 6 + (13 * 11 - 6 * 9 * 7) * 7);               // erase 9, write 13
  EXPECT_EQ(h.S("rwkv7"), 2 * (3 - 13 * 9 * 13) + 77);                 // a = 9, kappa = 13
  EXPECT_EQ(h.S("precond_delta"), 6 + 5 * (11 - 6 * 7) * 9);           // write key 9
  h.p.inputs = {h.row({9}), h.row({13}), h.row({17}), h.row({19})};
  EXPECT_EQ(h.S("mamba3"), 6 + 17 * 13 * 9 + 19 * 77);
  h.p.shape.n_h = 2;
  const int first = 6 + 5 * (11 - 6 * 7) * 7;
  EXPECT_EQ(h.S("delta_product"), first + 17 * (13 - first * 9) * 9);  // k = 9, v = 13, beta = 17
}

TEST(HandValues, TwoTokensDecayBetweenThem) {  // keys e_1, then e_1 + e_2; channels decay by 2 and 3
  Hand h(2, 2, 1);
  h.p.q = h.row({1, 0, 1, 1}), h.p.k = h.row({1, 0, 1, 1}), h.p.v = h.row({5, 7});
  h.p.beta = h.row({1, 1});
  h.p.alpha = h.row({2, 3, 2, 3});
  const Output<Rational> gla = h("gla"), kda = h("kda");
  EXPECT_TRUE(gla.S == (Mat<Rational>(1, 2) << 10 + 7, 7).finished());
  EXPECT_TRUE(kda.S == (Mat<Rational>(1, 2) << 10 + (7 - 10), 7 - 10).finished());
  EXPECT_EQ(kda.O(0, 0), 5);
  EXPECT_EQ(kda.O(1, 0), 10 - 3 - 3);
}

TEST(HandValues, TheErasedAndTheWrittenSideOfRwkv7AreNotExchangeable) {  // S_0 = (1, 0), kappa = (1, 1), a = (0, 1)
  Hand h(1, 2, 1);
  h.p.q = h.row({1, 1}), h.p.k = h.row({0, 0}), h.p.v = h.row({0});
  h.p.S0 = {(Mat<Rational>(1, 2) << 1, 0).finished()};
  h.p.inputs = {h.row({0, 1}), h.row({1, 1})};
  EXPECT_TRUE(h("rwkv7").S == (Mat<Rational>(1, 2) << 1, -1).finished());
}

TEST(HandValues, ALongKeyIsNoOverwrite) {  // F24, F25: S_0 = 0; the second key is ten times a unit key
  Hand h(1, 2, 2);
  h.p.q = h.row({1, 0}), h.p.k = h.row({1, 0}), h.p.v = h.row({3, 4}), h.p.beta = h.row({1});
  h.p.S0 = {(Mat<Rational>(2, 2) << 8, 9, -2, 5).finished()};
  EXPECT_TRUE(h("delta").S == (Mat<Rational>(2, 2) << 3, 9, 4, 5).finished());
  h.p.k = h.row({10, 0});
  const Vec<Rational> k = h.p.k.row(0, 0, 0), v = h.p.v.row(0, 0, 0);
  const Vec<Rational> before = v - h.p.S0[0] * k, after = v - h("delta").S * k;
  EXPECT_TRUE(after == Rational(-99) * before);
}

// ---- Names ----

TEST(Names, PeopleTypeThem) {
  const std::pair<std::string_view, std::string_view> names[] = {{"linear_attention", "linear"},
                                                                 {"retention", "retnet"},
                                                                 {"lightning", "retnet"},
                                                                 {"simple_gla", "mamba2"},
                                                                 {"Mamba-2", "mamba2"},
                                                                 {"ssd", "mamba2"},
                                                                 {"HGRN2", "gla"},
                                                                 {"deltanet", "delta"},
                                                                 {"Delta-Net", "delta"},
                                                                 {"gdn", "gated_delta"},
                                                                 {"Gated DeltaNet", "gated_delta"},
                                                                 {"gated_delta_rule", "gated_delta"},
                                                                 {"qdelta", "q_delta"},
                                                                 {"Q-Delta", "q_delta"},
                                                                 {"kimi_delta_attention", "kda"},
                                                                 {"GDN-2", "gdn2"},
                                                                 {"gated_delta_product", "delta_product"},
                                                                 {"RWKV-7", "rwkv7"},
                                                                 {"rwkv_7", "rwkv7"},
                                                                 {"headwise_beta", "gated_delta_channel"},
                                                                 {"pgdn", "precond_delta"},
                                                                 {"mamba-3", "mamba3"},
                                                                 {"Comba", "comba"}};
  for (const auto& [typed, id] : names) {
    ASSERT_NE(find_rule(typed), nullptr) << typed;
    EXPECT_EQ(find_rule(typed)->info.id, id) << typed;
  }
  EXPECT_EQ(find_rule("gated"), nullptr);
  EXPECT_EQ(find_rule(""), nullptr);
}

TEST(Names, AreUnique) {
  for (const Rule* r : rules()) {
    EXPECT_EQ(find_rule(r->info.id), r);
    for (std::string_view alias : r->info.aliases) EXPECT_EQ(find_rule(alias), r) << alias;
    for (const Input& i : r->info.inputs)
      for (std::string_view taken : {"q", "k", "v", "o", "beta", "g", "alpha", "lambda"}) EXPECT_NE(i.name, taken);
  }
}

}  // namespace
}  // namespace delta
