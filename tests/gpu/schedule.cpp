// SPDX-License-Identifier: Apache-2.0
// The schedules of the kernels in plain C++: as identities they are the rule, exactly, however a sequence is cut; with
// their roundings they err as 16-bit operands do.
#include <gtest/gtest.h>

#include "checks/core/equivalence.hpp"
#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "gpu/schedule/hopper.hpp"
#include "gpu/schedule/tensor_cores.hpp"

namespace delta::gpu {
namespace {

constexpr std::string_view kScalarDecay[] = {"linear", "retnet", "mamba2", "delta", "gated_delta", "q_delta"};

/// Random numbers of an exact scalar. \param resets  alpha = 0 at every so many tokens; 0: nowhere
template <Ring T> Problem<T> random_problem(const Rule& rule, const Shape& shape, std::size_t resets) {
  Problem<T> p = generic<T>(draw(rule.info, families()[0], shape, 7), 7);
  if (resets)
    for (std::size_t i = resets - 1; i < p.alpha.data.size(); i += resets) p.alpha.data[i] = T(0);
  return p;
}

template <Ring T> bool equal(const Result<T>& a, const Result<T>& b) {
  return std::ranges::equal(a, b, [](const Output<T>& x, const Output<T>& y) { return x.O == y.O && x.S == y.S; });
}

class HopperIsTheRule : public testing::TestWithParam<std::string_view> {
 protected:
  const Rule& rule = *find_rule(GetParam());

  template <Ring T> void expect_rule(const Shape& shape, const Tiles& tiles) const {
    for (const std::size_t resets : {0, 5}) {  // without them, or a segment would hide what came before it
      const Problem<T> p = random_problem<T>(rule, shape, resets);
      const Result<T> want = compute<T>(rule, "recurrent", 1, p);
      for (const Index segments : {1, 2, 3, 100})
        EXPECT_TRUE(equal(want, hopper(rule.info, p, Exact{}, segments, tiles)))
            << shape.text() << " chunks of " << tiles.chunk << ", tiles of " << tiles.tile << ", segments " << segments;
    }
  }
};

TEST_P(HopperIsTheRule, OverTheRationals) {
  for (const Index T : {0, 1, 7, 12}) expect_rule<Rational>({.T = T, .d_k = 3, .d_v = 2}, {.chunk = 4, .tile = 2});
  expect_rule<Rational>({.T = 11, .d_k = 2, .d_v = 4}, {.chunk = 5, .tile = 2});
}

TEST_P(HopperIsTheRule, OverAPrimeField) {
  for (const Index T : {0, 1, 15, 16, 17, 31, 70})
    expect_rule<GF61>({.T = T, .d_k = 5, .d_v = 3}, {.chunk = 16, .tile = 4});
  expect_rule<GF61>({.B = 2, .T = 9, .H = 2, .HV = 4, .d_k = 4, .d_v = 3}, {.chunk = 4, .tile = 3});
  expect_rule<GF61>({.T = 24, .HV = 2, .d_k = 3, .d_v = 4, .offsets = {0, 0, 5, 5, 14, 15, 22}},
                    {.chunk = 4, .tile = 1});
}

TEST_P(HopperIsTheRule, AtTheSizesOfTheKernel) { expect_rule<GF61>({.T = 200, .d_k = 64, .d_v = 64}, {}); }

INSTANTIATE_TEST_SUITE_P(Rules, HopperIsTheRule, testing::ValuesIn(kScalarDecay),
                         [](const auto& rule) { return std::string(rule.param); });

/// A head of q_delta over the prime field, which has everything that a head can have.
class OneHead : public testing::Test {
 protected:
  static constexpr Tiles tiles{.chunk = 4, .tile = 2};
  const Rule& rule = *find_rule("q_delta");
  Problem<GF61> p = random_problem<GF61>(rule, {.T = 14, .d_k = 3, .d_v = 2}, 0);
  Head<GF61> h = head(rule.info, p, 0, 0);
  Output<GF61> want = compute<GF61>(rule, "recurrent", 1, p)[0];
  std::vector<Prepared<GF61>> chunks = [this] {
    std::vector<Prepared<GF61>> all;
    for (Index begin = 0; begin < h.tokens(); begin += tiles.chunk) all.push_back(prepare(h, begin, tiles, Exact{}));
    return all;
  }();
};

TEST_F(OneHead, NormsAreFactorsOfTheRows) {
  Head<GF61> divided = h;
  for (Index t = 0; t < h.tokens(); ++t) {
    divided.q_norm[t] = GF61(3 * t + 2), divided.k_norm[t] = GF61(5 * t + 7);
    divided.Q.row(t) *= GF61(1) / divided.q_norm[t], divided.K.row(t) *= GF61(1) / divided.k_norm[t];
  }
  const Output<GF61> got = hopper(divided, Exact{}, 2, tiles);
  EXPECT_TRUE(got.O == want.O);
  EXPECT_TRUE(got.S == want.S);
}

TEST_F(OneHead, InvertsBySquares) {
  const Mat<GF61> I = Mat<GF61>::Identity(4, 4);
  for (const Prepared<GF61>& c : chunks)
    EXPECT_TRUE(Mat<GF61>(c.A + c.A * c.L) == I.topLeftCorner(c.A.rows(), c.A.rows()));
}

TEST_F(OneHead, TheErrorsAreThoseBeforeEachWrite) {
  Mat<GF61> S = h.S0, all(h.tokens(), h.V.cols());
  const Stream<GF61> tokens = stream(rule.info, rule.over<GF61>(), p, 0, 0);
  for (Index t = 0; t < h.tokens(); ++t) {
    const MicroStep<GF61>& s = tokens.steps[static_cast<std::size_t>(t)];
    s.d.decay_columns(S);
    const Vec<GF61> e = s.v - S * s.x;
    S += s.beta * e * s.y.transpose();
    all.row(t) = e.transpose();
  }
  hopper(h, Exact{}, 1, tiles,
         [&](const Walked<GF61>& w) { EXPECT_TRUE(w.E == all.middleRows(w.prepared.begin, w.E.rows())); });
}

TEST_F(OneHead, ASegmentIsTheAffineMapOfItsTokens) {
  Affine<GF61> tokens{Mat<GF61>::Identity(3, 3), Mat<GF61>::Zero(2, 3)};
  for (const MicroStep<GF61>& s : stream(rule.info, rule.over<GF61>(), p, 0, 0).steps) tokens.append(s);
  const Segment<GF61> all(chunks);
  EXPECT_TRUE(transfer(all, 3, Exact{}) == tokens.A);
  EXPECT_TRUE(end_state<GF61>(Mat<GF61>::Zero(2, 3), all, Exact{}) == tokens.U);
}

/// The tests above can fail: each of these is a mistake that was made, or could be.
TEST_F(OneHead, MistakesShow) {
  using Chunk = Prepared<GF61>;
  const auto right = [&](auto change) {
    std::vector<Chunk> wrong = chunks;
    for (Chunk& c : wrong) change(c);
    Output<GF61> got{Mat<GF61>(h.tokens(), h.V.cols()), h.S0};
    replay(got.S, Segment<GF61>(wrong), got.O, Exact{});
    return got.O == want.O && got.S == want.S;
  };
  const auto beta = [&](const Chunk& c) -> Vec<GF61> { return h.beta.segment(c.begin, c.Q.rows()); };
  const auto inverse_beta = [&](const Chunk& c) -> Vec<GF61> { return beta(c).cwiseInverse(); };
  EXPECT_TRUE(right([](Chunk&) {}));
  EXPECT_FALSE(right([](Chunk& c) { c.T = Mat<GF61>(c.T.transpose()); }));
  EXPECT_FALSE(right([](Chunk& c) { c.W = c.T * c.K; })) << "W without decay and lambda";
  EXPECT_FALSE(right([&](Chunk& c) { c.write = beta(c); })) << "D_w without gamma";
  EXPECT_FALSE(right([&](Chunk& c) { c.write = inverse_beta(c).cwiseProduct(c.write); })) << "D_w without beta";
  EXPECT_FALSE(right([&](Chunk& c) { c.P = Mat<GF61>(c.P * inverse_beta(c).asDiagonal()); })) << "P without beta";
  EXPECT_FALSE(right([&](Chunk& c) {
    const Mat<GF61> reads = c.W + c.L * c.W;  // D_g X
    c.T = Mat<GF61>(beta(c).asDiagonal() * c.A * inverse_beta(c).asDiagonal());
    c.W = c.T * reads;
  })) << "beta on the rows of L: T = (I + B G)^{-1} = B A B^{-1}";

  const std::vector<Segment<GF61>> parts = cut(chunks, 2);
  const Mat<GF61> M_0 = transfer(parts[0], 3, Exact{}), M_1 = transfer(parts[1], 3, Exact{}),
                  M = transfer(Segment<GF61>(chunks), 3, Exact{});
  EXPECT_TRUE(M_0 * M_1 == M);
  EXPECT_FALSE(M_1 * M_0 == M) << "the order of the segments";
}

TEST(Inverse, IsGoodToSixteenBits) {
  Mat<double> L = Mat<double>::Zero(61, 61);
  for (Index i = 0; i < 61; ++i)
    for (Index j = 0; j < i; ++j) L(i, j) = 0.5 + 0.4 * std::sin(static_cast<double>(7 * i + 3 * j));
  const Mat<double> want = solve_unit_lower<double>(L, Mat<double>::Identity(61, 61));
  for (const Format& f : {kBf16, kFp16}) {
    const Mat<double> A = inverse_by_squares(L, 16, SixteenBits{f});
    EXPECT_LT((A - want).norm(), 1e-4 * want.norm());
    EXPECT_GT((A - want).norm(), 1e-7 * want.norm()) << "nothing was rounded";
  }
}

/// What a product reads is within the unit roundoff u of what it stands for, and on well-conditioned inputs no error is
/// multiplied: errors are about one u, so eight times as large in bf16 as in fp16, and a cut adds none.
TEST(Rounded, ErrsAsSixteenBitOperandsDo) {
  for (const std::string_view id : kScalarDecay)
    for (const char* family : {"gate_half", "gate_one", "alpha_zero", "repeated_keys"}) {
      const Rule& rule = *find_rule(id);
      const Problem<double> p = draw(rule.info, *find_family(family), Size::parse("B1_T200_H1_HV1_K64_V32_C64"), 3);
      const Result<DoubleDouble> want = compute_paper<DoubleDouble>(rule, over<DoubleDouble>(p));
      const Distance exact = distance(want, hopper(rule.info, p, Exact{}));
      EXPECT_LT(std::max(exact.o, exact.state), 1e-12) << id << ' ' << family;
      for (const Format& f : {kBf16, kFp16})
        for (const Index segments : {1, 3}) {
          const Distance d = distance(want, hopper(rule.info, p, SixteenBits{f}, segments));
          EXPECT_LT(std::max(d.o, d.state), 3 * f.unit()) << id << ' ' << family << ' ' << f.name << ' ' << segments;
          EXPECT_GT(d.o, 0.2 * f.unit()) << id << ' ' << family << ' ' << f.name << ": nothing was rounded";
        }
    }
}

/// The schedule of v4: without rounding it is the rule, with rounding it errs as 16-bit operands do.
TEST(TensorCores, IsTheRuleWhenNothingIsRounded) {
  for (const char* id : {"linear", "retnet", "mamba2", "delta", "gated_delta", "q_delta", "kda"}) {
    const Rule& rule = *find_rule(id);
    for (const char* family : {"gate_half", "alpha_zero", "repeated_keys"}) {
      const Problem<double> p = draw(rule.info, *find_family(family), Size::parse("B1_T70_H1_HV2_K24_V8_C64"), 3);
      const Result<double> want = compute_paper<double>(rule, p);
      const Distance exact = distance(want, run<double>(rule.info, rule.over<double>(), p, [](const Stream<double>& s) {
                                        return tensor_cores(s, kFp64);
                                      }));
      EXPECT_LT(std::max(exact.o, exact.state), 1e-12) << id << ' ' << family;
      const Distance rounded =
          distance(want, run<double>(rule.info, rule.over<double>(), p,
                                     [](const Stream<double>& s) { return tensor_cores(s, kBf16); }));
      EXPECT_LT(rounded.o, 0.05) << id << ' ' << family;
      EXPECT_GT(rounded.o, 1e-4) << id << ' ' << family << ": nothing was rounded";
    }
  }
}

}  // namespace
}  // namespace delta::gpu
