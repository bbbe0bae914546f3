// SPDX-License-Identifier: Apache-2.0
// Every gradient is the derivative, exactly: along a random direction it equals what dual numbers carry through the
// same template, over a prime field and over the rationals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "checks/core/families.hpp"
#include "checks/core/measure.hpp"
#include "reference/gradient/gradient.hpp"
#include "reference/gradient/one_solve_adjoint.hpp"
#include "tests/reference/streams.hpp"

namespace delta {
namespace {

template <Ring T> T inner(const Mat<T>& A, const Mat<T>& B) { return A.cwiseProduct(B).sum(); }

/// <a, b> over every number of two streams of the same shape.
template <Ring T> T inner(const Stream<T>& a, const Stream<T>& b) {
  T sum = inner<T>(a.Q, b.Q) + inner<T>(a.S0, b.S0);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const MicroStep<T>&x = a.steps[i], &y = b.steps[i];
    sum += x.d.d.dot(y.d.d) + x.x.dot(y.x) + x.y.dot(y.y) + x.v.dot(y.v) + x.beta * y.beta;
  }
  return sum;
}

/// <a, b> over every tensor of two problems of the same shape.
template <Ring T> T inner(const Problem<T>& a, const Problem<T>& b) {
  T sum(0);
  auto add = [&](const Tensor<T>& x, const Tensor<T>& y) {
    ASSERT_EQ(x.data.size(), y.data.size());
    for (std::size_t i = 0; i < x.data.size(); ++i) sum += x.data[i] * y.data[i];
  };
  add(a.q, b.q), add(a.k, b.k), add(a.v, b.v), add(a.beta, b.beta), add(a.alpha, b.alpha), add(a.lambda, b.lambda);
  for (std::size_t i = 0; i < a.inputs.size(); ++i) add(a.inputs[i], b.inputs[i]);
  for (std::size_t i = 0; i < a.S0.size(); ++i) sum += inner<T>(a.S0[i], b.S0[i]);
  return sum;
}

template <Ring T> T value(const Dual<T>& x) { return x.value; }
template <Ring T> T tangent(const Dual<T>& x) { return x.tangent; }
template <Ring T> Mat<T> tangents(const Mat<Dual<T>>& A) {
  return A.unaryExpr([](const Dual<T>& x) { return x.tangent; }).template cast<T>();
}

GF61 element(Random& r, GF61) { return GF61::from_residue(r.bits() >> 3); }
Rational element(Random& r, Rational) { return Rational(int(r.below(19)) - 9) / Rational(1 + int(r.below(4))); }
template <Ring T> Mat<T> random_matrix(Index rows, Index cols, Random& r) {
  Mat<T> A(rows, cols);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) A(i, j) = element(r, T());
  return A;
}

// ---- The adjoints of the forms, on every kind of stream.

template <Ring T> void expect_adjoints_are_derivatives(const StreamShape& z, Index C, std::uint64_t seed) {
  Random r(seed);
  const Stream<Dual<T>> s = random_stream<Dual<T>>(z, [&] { return Dual<T>(element(r, T()), element(r, T())); });
  const Stream<T> at = map<T>(s, value<T>), along = map<T>(s, tangent<T>);
  const Mat<T> dO = random_matrix<T>(z.T, z.d_v, r), dS = random_matrix<T>(z.d_v, z.d_k, r);

  const Output<Dual<T>> out = recurrent(s);
  const T derivative = inner<T>(dO, tangents<T>(out.O)) + inner<T>(dS, tangents<T>(out.S));
  EXPECT_EQ(inner(recurrent_adjoint<T>(at, dO, dS, C), along), derivative);
  EXPECT_EQ(inner(one_solve_adjoint<T>(at, dO, dS, C), along), derivative);
}

TEST(Adjoint, IsTheDerivativeOnEveryKindOfMicroStep) {
  for (Decays decays : {Decays::none, Decays::scalar, Decays::channel})
    for (bool pre_decay : {false, true})
      for (Index m : {1, 3})
        for (Index T : {0, 1, 9})
          for (Index C : {1, 4, 16}) {
            SCOPED_TRACE(testing::Message() << "decays " << static_cast<int>(decays) << " pre_decay " << pre_decay
                                            << " m " << m << " T " << T << " C " << C);
            expect_adjoints_are_derivatives<GF61>({T, 3, 2, m, decays, pre_decay, 4}, C, 17);
          }
}

TEST(Adjoint, IsTheDerivativeOverTheRationals) {
  expect_adjoints_are_derivatives<Rational>({4, 2, 3, 2, Decays::channel, false, 3}, 3, 1);
  expect_adjoints_are_derivatives<Rational>({5, 3, 2, 1, Decays::scalar, true, 2}, 2, 2);
}

TEST(Adjoint, IsTheDerivativeAtRealSizes) {
  expect_adjoints_are_derivatives<GF61>({130, 32, 16, 1, Decays::channel, false, 50}, 64, 3);
}

RC_GTEST_PROP(Adjoint, IsTheDerivative, ()) {
  auto from = [](Index low, Index high) { return *rc::gen::inRange<Index>(low, high + 1); };
  const StreamShape z{from(0, 12), from(1, 4), from(1, 4), from(1, 3), Decays(from(0, 2)), *rc::gen::arbitrary<bool>(),
                      from(0, 5)};
  expect_adjoints_are_derivatives<GF61>(z, from(1, 14), *rc::gen::arbitrary<std::uint64_t>());
  RC_ASSERT(!testing::Test::HasFailure());
}

// ---- The gradients of the rules.

std::vector<const Rule*> differentiable_rules() {
  std::vector<const Rule*> some;
  for (const Rule* r : rules())
    if (r->has_gradient()) some.push_back(r);
  return some;
}

class Gradient : public testing::TestWithParam<const Rule*> {
 protected:
  const Rule& rule = *GetParam();

  void expect_derivative(const Shape& shape) const { expect_derivative(draw(rule.info, families()[0], shape, 1)); }
  void expect_derivative(const Problem<double>& like) const {
    const Shape& shape = like.shape;
    SCOPED_TRACE(shape.text());
    Problem<Dual<GF61>> p = generic<Dual<GF61>>(like, 23);
    p.scale.tangent = 0;
    const Problem<GF61> at = p.map<GF61>(value<GF61>), along = p.map<GF61>(tangent<GF61>);
    Random r(29);
    Result<GF61> d;
    GF61 derivative(0);
    for (const Output<Dual<GF61>>& lane : compute<Dual<GF61>>(rule, "recurrent", 1, p)) {
      d.push_back({random_matrix<GF61>(lane.O.rows(), lane.O.cols(), r), random_matrix<GF61>(shape.d_v, shape.d_k, r)});
      derivative += inner<GF61>(d.back().O, tangents<GF61>(lane.O)) + inner<GF61>(d.back().S, tangents<GF61>(lane.S));
    }
    EXPECT_EQ(inner(compute_gradient<GF61>(rule, at, d), along), derivative);
  }
};

TEST_P(Gradient, IsTheDerivative) { expect_derivative({.T = 9, .d_k = 4, .d_v = 3, .n_h = 2}); }
TEST_P(Gradient, AddsUpOverTheValueHeadsOfAKeyHead) {
  expect_derivative({.B = 2, .T = 5, .H = 2, .HV = 6, .d_k = 3, .d_v = 4, .n_h = 2});
}
TEST_P(Gradient, OfPackedSequences) {
  expect_derivative({.T = 16, .HV = 2, .d_k = 3, .d_v = 4, .n_h = 3, .offsets = {0, 0, 5, 5, 14}});
}
TEST_P(Gradient, OfNoTokensIsThatOfTheInitialState) { expect_derivative({.T = 0, .d_k = 3, .d_v = 4}); }
TEST_P(Gradient, OfNumbersSpreadOverChannelsAndOfInputsLeftOut) {
  const Shape shape{.T = 6, .HV = 2, .d_k = 3, .d_v = 4, .n_h = 2};
  Problem<double> like = draw(rule.info, families()[0], shape, 1);
  if (!like.alpha.empty()) like.alpha = Tensor<double>(1, 6, 2, 1);
  if (!like.beta.empty()) like.beta = Tensor<double>(1, 6, 2, 1);
  if (!like.inputs.empty()) like.inputs[0] = {};
  expect_derivative(like);
}
TEST_P(Gradient, OfOneChannel) { expect_derivative({.T = 6, .d_k = 1, .d_v = 1, .n_h = 1}); }

INSTANTIATE_TEST_SUITE_P(Rules, Gradient, testing::ValuesIn(differentiable_rules()),
                         [](const auto& rule) { return std::string(rule.param->info.id); });

struct without_pullback {
  static constexpr RuleInfo info{.id = "without_pullback"};
  template <Ring T> static Steps<T> steps(const Token<T>& t) { return {{.x = t.k, .y = t.k, .v = t.v}}; }
  template <Ring T> static Vec<T> paper_step(Mat<T>&, const Token<T>& t) { return t.q; }
};

TEST(Pullback, IsOptional) { EXPECT_EQ((ops<without_pullback, GF61>().pullback), nullptr); }
TEST(Pullback, ExistsForTheRulesThatPeopleTrain) {
  for (const char* id : {"delta", "gated_delta", "q_delta", "kda"}) EXPECT_TRUE(find_rule(id)->has_gradient()) << id;
}

}  // namespace
}  // namespace delta
