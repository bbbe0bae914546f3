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

constexpr Solve kSolves[] = {Solve::beforehand, Solve::on_the_chain};
const char* name(Solve solve) { return solve == Solve::beforehand ? "beforehand" : "on_the_chain"; }
/// Into how many segments a kernel that solves so may cut a sequence; 100: more than there are chunks.
std::vector<Index> segments_of(Solve solve) {
  return solve == Solve::beforehand ? std::vector<Index>{1, 2, 3, 100} : std::vector<Index>{1};
}

class HopperIsTheRule : public testing::TestWithParam<std::tuple<std::string_view, Solve>> {
 protected:
  const Rule& rule = *find_rule(std::get<0>(GetParam()));
  const Solve solve = std::get<1>(GetParam());

  template <Ring T> void expect_rule(const Shape& shape, const Tiles& tiles) const {
    for (const std::size_t resets : {0, 5}) {  // without them, or a segment would hide what came before it
      const Problem<T> p = random_problem<T>(rule, shape, resets);
      const Result<T> want = compute<T>(rule, "recurrent", 1, p);
      for (const Index segments : segments_of(solve))
        EXPECT_TRUE(equal(want, hopper(rule.info, p, solve, Exact{}, segments, tiles)))
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

INSTANTIATE_TEST_SUITE_P(Rules, HopperIsTheRule,
                         testing::Combine(testing::ValuesIn(kScalarDecay), testing::ValuesIn(kSolves)),
                         [](const auto& which) {
                           return std::string(std::get<0>(which.param)) + "_" + name(std::get<1>(which.param));
                         });

/// A head of q_delta over the prime field, which has everything that a head can have.
class OneHead : public testing::TestWithParam<Solve> {
 protected:
  static constexpr Tiles tiles{.chunk = 8, .tile = 2};  // two squares of 4 where the chain solves
  const Rule& rule = *find_rule("q_delta");
  Problem<GF61> p = random_problem<GF61>(rule, {.T = 30, .d_k = 3, .d_v = 2}, 0);
  Head<GF61> h = head(rule.info, p, 0, 0);
  Output<GF61> want = compute<GF61>(rule, "recurrent", 1, p)[0];
  std::vector<Prepared<GF61>> chunks = [this] {
    std::vector<Prepared<GF61>> all;
    for (Index begin = 0; begin < h.tokens(); begin += tiles.chunk)
      all.push_back(prepare(h, begin, GetParam(), tiles, Exact{}));
    return all;
  }();
};

TEST_P(OneHead, NormsAreFactorsOfTheRows) {
  Head<GF61> divided = h;
  for (Index t = 0; t < h.tokens(); ++t) {
    divided.q_norm[t] = GF61(3 * t + 2), divided.k_norm[t] = GF61(5 * t + 7);
    divided.Q.row(t) *= GF61(1) / divided.q_norm[t], divided.K.row(t) *= GF61(1) / divided.k_norm[t];
  }
  for (const Index segments : segments_of(GetParam())) {
    const Output<GF61> got = hopper(divided, GetParam(), Exact{}, segments, tiles);
    EXPECT_TRUE(got.O == want.O && got.S == want.S) << segments;
  }
}

TEST_P(OneHead, InvertsBySquares) {
  for (const Prepared<GF61>& c : chunks) {
    const Index all = c.A.rows(), square = GetParam() == Solve::beforehand ? all : tiles.square();
    for (Index i = 0; i < all; i += square) {
      const Index n = std::min(square, all - i);
      const Mat<GF61> A = c.A.block(i, i, n, n), L = c.L.block(i, i, n, n);
      EXPECT_TRUE(Mat<GF61>(A + A * L) == Mat<GF61>(Mat<GF61>::Identity(n, n)));
      const Index below = all - i - n;
      EXPECT_TRUE(Mat<GF61>(c.A.block(i + n, i, below, n)) == Mat<GF61>(Mat<GF61>::Zero(below, n)));
    }
  }
}

TEST_P(OneHead, TheErrorsAreThoseBeforeEachWrite) {
  Mat<GF61> S = h.S0, all(h.tokens(), h.V.cols());
  const Stream<GF61> tokens = stream(rule.info, rule.over<GF61>(), p, 0, 0);
  for (Index t = 0; t < h.tokens(); ++t) {
    const MicroStep<GF61>& s = tokens.steps[static_cast<std::size_t>(t)];
    s.d.decay_columns(S);
    const Vec<GF61> e = s.v - S * s.x;
    S += s.beta * e * s.y.transpose();
    all.row(t) = e.transpose();
  }
  hopper(h, GetParam(), Exact{}, 1, tiles,
         [&](const Walked<GF61>& w) { EXPECT_TRUE(w.E == all.middleRows(w.prepared.begin, w.E.rows())); });
}

TEST_P(OneHead, ASegmentIsTheAffineMapOfItsTokens) {
  Affine<GF61> tokens{Mat<GF61>::Identity(3, 3), Mat<GF61>::Zero(2, 3)};
  for (const MicroStep<GF61>& s : stream(rule.info, rule.over<GF61>(), p, 0, 0).steps) tokens.append(s);
  const Segment<GF61> all(chunks);
  EXPECT_TRUE(transfer(all, 3, Exact{}) == tokens.A);
  EXPECT_TRUE(end_state<GF61>(Mat<GF61>::Zero(2, 3), all, Exact{}) == tokens.U);
}

/// The tests above can fail: each of these is a mistake that was made, or could be.
TEST_P(OneHead, MistakesShow) {
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
  EXPECT_FALSE(right([&](Chunk& c) { c.write = beta(c); })) << "D_w without gamma";
  EXPECT_FALSE(right([&](Chunk& c) { c.write = inverse_beta(c).cwiseProduct(c.write); })) << "D_w without beta";
  EXPECT_FALSE(right([&](Chunk& c) { c.P = Mat<GF61>(c.P * inverse_beta(c).asDiagonal()); })) << "P without beta";
  const auto from_rows = [&](const Chunk& c) -> Mat<GF61> {  // (I + B G)^{-1} = B A B^{-1}
    return beta(c).asDiagonal() * c.A * inverse_beta(c).asDiagonal();
  };
  if (GetParam() == Solve::beforehand) {
    EXPECT_FALSE(right([](Chunk& c) { c.T = Mat<GF61>(c.T.transpose()); }));
    EXPECT_FALSE(right([](Chunk& c) { c.W = c.T * c.K; })) << "W without decay and lambda";
    EXPECT_FALSE(right([&](Chunk& c) {
      const Mat<GF61> reads = c.W + c.L * c.W;  // D_g X
      c.T = from_rows(c), c.W = c.T * reads;
    })) << "beta on the rows of L";
  } else {
    EXPECT_FALSE(right([](Chunk& c) { c.A = Mat<GF61>(c.A.transpose()); }));
    EXPECT_FALSE(right([&](Chunk& c) { c.A = from_rows(c); })) << "beta on the rows of L";
    EXPECT_FALSE(right([](Chunk& c) { c.L = Mat<GF61>(-c.L); })) << "what the first square leaves, added";
    EXPECT_FALSE(right([](Chunk& c) { c.L.setZero(); })) << "the second square by itself";
    EXPECT_FALSE(right([](Chunk& c) { c.share.setZero(); })) << "X without lambda";
    EXPECT_FALSE(right([](Chunk& c) { c.read.setOnes(); })) << "R without D_a";
  }

  const std::vector<Segment<GF61>> parts = cut(chunks, 2);
  const Mat<GF61> M_0 = transfer(parts[0], 3, Exact{}), M_1 = transfer(parts[1], 3, Exact{}),
                  M = transfer(Segment<GF61>(chunks), 3, Exact{});
  EXPECT_TRUE(M_0 * M_1 == M);
  EXPECT_FALSE(M_1 * M_0 == M) << "the order of the segments";
}

INSTANTIATE_TEST_SUITE_P(Solves, OneHead, testing::ValuesIn(kSolves),
                         [](const auto& solve) { return std::string(name(solve.param)); });

TEST(Inverse, IsGoodToTheBitsOfItsFactors) {
  Mat<double> L = Mat<double>::Zero(61, 61);
  for (Index i = 0; i < 61; ++i)
    for (Index j = 0; j < i; ++j) L(i, j) = 0.5 + 0.4 * std::sin(static_cast<double>(7 * i + 3 * j));
  const Mat<double> want = solve_unit_lower<double>(L, Mat<double>::Identity(61, 61));
  const SixteenBits round{kFp16};  // neither rounding depends on the type of the inputs
  const auto error = [&](Index tile, const auto& multiply) {
    return (inverse_by_squares(L, tile, 61, multiply) - want).norm() / want.norm();
  };
  const double pairs = error(16, [&](const Mat<double>& M, const Mat<double>& N) -> Mat<double> {
    return round.bf16_pair(M) * round.bf16_pair(N);
  });
  const double tf32 = error(
      8, [&](const Mat<double>& M, const Mat<double>& N) -> Mat<double> { return round.tf32(M) * round.tf32(N); });
  EXPECT_LT(pairs, 4 * 0x1p-17);
  EXPECT_GT(pairs, 0x1p-24) << "nothing was rounded";
  EXPECT_LT(tf32, 4 * kTf32.unit());
  EXPECT_GT(tf32, kTf32.unit() / 16) << "nothing was rounded";
}

/// What a product reads is within the unit roundoff u of what it stands for, and on well-conditioned inputs no error is
/// multiplied: errors are about one u, so eight times as large in bf16 as in fp16, and a cut adds none.
TEST(Rounded, ErrsAsSixteenBitOperandsDo) {
  for (const std::string_view id : kScalarDecay)
    for (const char* family : {"gate_half", "gate_one", "alpha_zero", "repeated_keys"}) {
      const Rule& rule = *find_rule(id);
      const Problem<double> p = draw(rule.info, *find_family(family), Size::parse("B1_T200_H1_HV1_K64_V32_C64"), 3);
      const Result<DoubleDouble> want = compute_paper<DoubleDouble>(rule, over<DoubleDouble>(p));
      for (const Solve solve : kSolves) {
        const std::string what = std::string(id) + ' ' + family + ' ' + name(solve) + ' ';
        const Distance exact = distance(want, hopper(rule.info, p, solve, Exact{}));
        EXPECT_LT(std::max(exact.o, exact.state), 1e-12) << what;
        for (const Format& f : {kBf16, kFp16})
          for (const Index segments : segments_of(solve)) {
            const Distance d = distance(want, hopper(rule.info, p, solve, SixteenBits{f}, segments));
            EXPECT_LT(std::max(d.o, d.state), 3 * f.unit()) << what << f.name << ' ' << segments;
            EXPECT_GT(d.o, 0.2 * f.unit()) << what << f.name << ": nothing was rounded";
          }
      }
    }
}

/// Where the chain solves, lambda and X are not rounded, nor is anything else that L is made of.
TEST(Rounded, NothingIsRoundedBeforeLWhereTheChainSolves) {
  const Rule& rule = *find_rule("q_delta");
  const Problem<double> p = draw(rule.info, *find_family("gate_half"), Size::parse("B1_T64_H1_HV1_K64_V32_C64"), 3);
  const Head<double> h = head(rule.info, p, 0, 0);
  const auto prepared = [&](Solve solve, const auto& round) { return prepare(h, 0, solve, {}, round); };
  const Prepared<double> exact = prepared(Solve::on_the_chain, Exact{});
  const SixteenBits bf16{kBf16};
  EXPECT_TRUE(prepared(Solve::on_the_chain, bf16).L == exact.L);
  EXPECT_TRUE(prepared(Solve::on_the_chain, bf16).share == exact.share);
  EXPECT_FALSE(prepared(Solve::beforehand, bf16).L == exact.L);
}

/// Counts the numbers that are rounded to tf32.
struct Counting : Exact {
  Index& count;
  template <class M> PlainMat<M> tf32(const Eigen::MatrixBase<M>& A) const {
    count += A.size();
    return A;
  }
};

/// A rounding of 2^-12 that is left out hardly shows in an error, so the factors are counted.
TEST(Rounded, EveryFactorOfTheSolveIsRoundedToTf32) {
  const Rule& rule = *find_rule("gated_delta");
  const Problem<double> p = draw(rule.info, *find_family("gate_half"), Size::parse("B1_T64_H1_HV1_K64_V32_C64"), 3);
  const Head<double> h = head(rule.info, p, 0, 0);
  Index count = 0;
  const Counting rounding{{}, count};
  const Prepared<double> c = prepare(h, 0, Solve::on_the_chain, {}, rounding);
  EXPECT_EQ(count, 4 * 4 * 8 * 8 + 2 * 4 * 16 * 16 + 64 * 64)
      << "four joins of 8 x 8, two of 16 x 16, with four factors each; and A";
  count = 0;
  errors(h.S0, c, c.V, rounding);
  EXPECT_EQ(count, 32 * 32 + 64 * 32 + 64 * 32) << "L_21, R and E";
  count = 0;
  prepare(h, 0, Solve::beforehand, {}, rounding);
  EXPECT_EQ(count, 0);
}

/// bf16 where tf32 is asked for.
struct Coarse : SixteenBits {
  template <class M> PlainMat<M> tf32(const Eigen::MatrixBase<M>& A) const { return SixteenBits{kBf16}.operand(A); }
};

/// With one key and beta = 1 a token overwrites what the one before it wrote, e~_t = v_t - v_{t-1}: all but the first
/// forget S and what it was rounded to. A chain that solves takes them from R, which does not, and is far larger here.
/// A and L are 0, 1 or -1 here, but for what bf16 keys lack of unit length, so an e~_t of the second square is reached
/// by roundings of numbers as large as R:
///   A_11 and R_1   in e~_1 = A_11 R_1, which L_21 carries on
///   L_21 and E_1   in R_2 - L_21 E_1
///   A_22 and R_2   in E_2
/// six in all. With W beforehand nothing of S is left to be rounded.
TEST(Rounded, WhatIsLeftOfRIsOffByItsRoundings) {
  const Rule& rule = *find_rule("delta");
  const Problem<double> p = draw(rule.info, *find_family("repeated_keys"), Size::parse("B1_T64_H1_HV1_K64_V32_C64"), 3);
  Head<double> h = head(rule.info, p, 0, 0);
  h.S0 *= 100;
  const Prepared<double> exact = prepare(h, 0, Solve::on_the_chain, {}, Exact{});
  const Mat<double> want = errors(h.S0, exact, exact.V, Exact{}),
                    R = exact.V - exact.read.asDiagonal() * Mat<double>(exact.K * h.S0.transpose());
  for (const Format& f : {kBf16, kFp16}) {
    const auto error_after_first = [&](Solve solve, const auto& rounding) {
      const Prepared<double> c = prepare(h, 0, solve, {}, SixteenBits{f});
      const Mat<double> E = errors(h.S0, c, c.V, rounding);
      return (E - want).bottomRows(63).cwiseAbs().maxCoeff();
    };
    const double of_R = 6 * kTf32.unit() * R.cwiseAbs().maxCoeff();
    EXPECT_LT(error_after_first(Solve::beforehand, SixteenBits{f}), f.unit() * want.cwiseAbs().maxCoeff()) << f.name;
    EXPECT_LT(error_after_first(Solve::on_the_chain, SixteenBits{f}), of_R) << f.name;
    EXPECT_GT(error_after_first(Solve::on_the_chain, Coarse{f}), of_R) << f.name;
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
