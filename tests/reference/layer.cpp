// SPDX-License-Identifier: Apache-2.0
// What surrounds a rule: gates, norms, strengths, convolutions, the block. Each law has a bound that follows from the
// precision, or none at all.
#include <gtest/gtest.h>

#include "reference/core/random.hpp"
#include "reference/forms/recurrent.hpp"
#include "reference/layer/block.hpp"
#include "reference/layer/hybrid.hpp"
#include "reference/layer/precondition.hpp"
#include "reference/layer/rotation.hpp"
#include "reference/layer/shift.hpp"
#include "reference/layer/strength.hpp"
#include "reference/layer/trapezoid.hpp"
#include "reference/scalars/multiprecision.hpp"
#include "reference/scalars/rational.hpp"

namespace delta {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Mat<double> random_matrix(Index rows, Index cols, Random& r) {
  return Mat<double>::NullaryExpr(rows, cols, [&] { return r.normal(); });
}
Vec<double> random_vector(Index n, Random& r) { return random_matrix(n, 1, r); }

/// |a - b| <= n units in the last place of b.
testing::AssertionResult within(double n, double a, double b) {
  const double ulps = a == b ? 0 : std::abs(a - b) / (std::abs(b) * 0x1p-52);
  return ulps <= n ? testing::AssertionSuccess()
                   : testing::AssertionFailure() << a << " is " << ulps << " ulp from " << b << ", allowed " << n;
}

// ---- Gates ----

TEST(Gates, ReachTheirLimits) {
  EXPECT_EQ(sigmoid(1e4), 1);
  EXPECT_EQ(sigmoid(-1e4), 0);
  EXPECT_EQ(sigmoid(0.0), 0.5);
  EXPECT_GT(sigmoid(-700.0), 0);
  EXPECT_EQ(silu(-1e4), 0);
  EXPECT_EQ(softplus(1e4), 1e4);
  EXPECT_EQ(softplus(-1e4), 0);
  EXPECT_EQ(log_softplus(-1e4), -1e4);
  EXPECT_EQ(decay(-kInfinity), 0);  // a reset
  EXPECT_EQ(decay(0.0), 1);
  EXPECT_NEAR(sigmoid(-0.8), 0.3100, 5e-5);  // F78
}

TEST(Gates, AgreeWithTheirDefinitionInFiftyDigits) {
  for (double x = -40; x <= 40; x += 0.37) {
    const Mp50 e = exp(Mp50(x));
    EXPECT_TRUE(within(4, sigmoid(x), static_cast<double>(e / (1 + e)))) << x;
    EXPECT_TRUE(within(4, softplus(x), static_cast<double>(log(1 + e)))) << x;
    const double want = static_cast<double>(log(log(1 + e)));  // the log of a number near 1 has absolute digits only
    EXPECT_NEAR(log_softplus(x), want, 4 * 0x1p-52 * std::max(1.0, std::abs(want))) << x;
    // and e^y turns the absolute error of y = A_log + ln softplus into a relative one
    EXPECT_TRUE(
        within(8 + 2 * std::abs(x), log_decay(2.0, x - 1, 1.0), static_cast<double>(-exp(Mp50(2)) * log(1 + e))))
        << x;
  }
}

TEST(Gates, AHugeRateTimesATinyStepIsAnOrdinaryDecay) {
  // A_log = 100 and a + dt_bias = -200 in fp32: exp(100) is infinity, softplus(-200) is 0, their product NaN.
  EXPECT_TRUE(std::isnan(-std::exp(100.f) * std::log1p(std::exp(-200.f))));
  const float g = log_decay(100.f, -150.f, -50.f);
  EXPECT_NEAR(g / std::exp(-100.f), -1, 1e-5);
  EXPECT_EQ(decay(g), 1);
  EXPECT_EQ(decay(log_decay(100.f, 200.f, 0.f)), 0);
  for (double A : {-1e3, 0.0, 1e3})
    for (double a : {-1e4, -1e3, -1.0, 0.0, 1.0, 1e3}) {
      const double alpha = decay(log_decay(A, a, 0.0));
      EXPECT_TRUE(alpha >= 0 && alpha <= 1) << A << ' ' << a;
    }
}

TEST(Gates, RetNetsConstants) {
  EXPECT_EQ(retnet_alpha<Rational>(0), Rational(31) / 32);
  EXPECT_EQ(retnet_alpha<Rational>(3), Rational(255) / 256);
}

// ---- Unit length: four places for one epsilon ----

TEST(Normalise, TheConventionsPartOnSmallVectors) {
  const double eps = 1e-6;
  auto length = [&](double entry, Eps where) {
    return l2_normalise<double>(Vec<double>::Constant(128, entry), eps, where).norm();
  };
  for (Eps where : {Eps::in_sum, Eps::in_mean, Eps::floor, Eps::added}) EXPECT_NEAR(length(1, where), 1, 1e-6);
  auto off = [&](double entry, Eps where) { return std::abs(length(entry, where) / length(entry, Eps::in_sum) - 1); };
  EXPECT_NEAR(off(1e-3, Eps::in_mean), 0.29, 0.005);
  EXPECT_NEAR(off(1e-4, Eps::in_mean), 0.86, 0.02);
  EXPECT_NEAR(off(1e-3, Eps::floor), 0.004, 0.0005);
  EXPECT_NEAR(off(1e-4, Eps::floor), 0.33, 0.02);
  for (Eps where : {Eps::in_sum, Eps::in_mean, Eps::floor, Eps::added}) EXPECT_EQ(length(0, where), 0);
}

TEST(Normalise, ByHand) {  // |x| = 5; eps = 11: sqrt(25 + 11) = 6, sqrt(25 + 2 * 12) = 7, max(5, 11), 5 + 11
  const Vec<double> x = (Vec<double>(2) << 3, 4).finished();
  EXPECT_TRUE(l2_normalise<double>(x, 11) == x / 6.0);
  EXPECT_TRUE(l2_normalise<double>(x, 12, Eps::in_mean) == x / 7.0);
  EXPECT_TRUE(l2_normalise<double>(x, 11, Eps::floor) == x / 11.0);
  EXPECT_TRUE(l2_normalise<double>(x, 11, Eps::added) == x / 16.0);
  EXPECT_TRUE((rms_norm<double>(x, Vec<double>::Constant(2, 2), 3.5)) == 2 * x / 4.0);  // sqrt(25/2 + 3.5)
}

// ---- Strengths: the delta rule in other clothes ----

Rational random_rational(Random& r) {
  return Rational(static_cast<int>(r.below(19)) - 9) / static_cast<int>(1 + r.below(7));
}
Mat<Rational> random_rationals(Index rows, Index cols, Random& r) {
  return Mat<Rational>::NullaryExpr(rows, cols, [&] { return random_rational(r); });
}
Mat<Rational> delta_step(Mat<Rational> S, const Vec<Rational>& k, const Vec<Rational>& v, const Rational& beta) {
  apply(S, MicroStep<Rational>{.d = {}, .x = k, .y = k, .v = v, .beta = beta});
  return S;
}

TEST(Strength, KaczmarzStoresTheValue) {
  Random r(1);
  const Mat<Rational> S = random_rationals(3, 4, r);
  const Vec<Rational> k = random_rationals(4, 1, r), v = random_rationals(3, 1, r);
  EXPECT_TRUE(delta_step(S, k, v, kaczmarz(Rational(k.dot(k)))) * k == v);
  EXPECT_EQ(kaczmarz(Rational(0)), 0);
}

TEST(Strength, LonghornIsTheExactMinimiser) {  // F57: f(S* + E) - f(S*) = |E|^2 + beta |E k|^2 for every E
  Random r(2);
  const Mat<Rational> S = random_rationals(3, 4, r);
  const Vec<Rational> k = random_rationals(4, 1, r), v = random_rationals(3, 1, r);
  const Rational beta = Rational(7) / 3;
  auto squared = [](const Mat<Rational>& A) { return Rational(A.cwiseProduct(A).sum()); };
  auto f = [&](const Mat<Rational>& A) { return Rational(squared(A - S) + beta * squared(A * k - v)); };
  const Mat<Rational> best = delta_step(S, k, v, longhorn(beta, Rational(k.dot(k))));
  for (int i = 0; i < 5; ++i) {
    const Mat<Rational> E = random_rationals(3, 4, r);
    EXPECT_EQ(f(best + E) - f(best), squared(E) + beta * squared(E * k));
  }
  EXPECT_EQ(longhorn(beta, Rational(0)), beta);
}

TEST(Strength, EflaIsAFlow) {  // the flow over a + b is the flow over a, then over b
  const Mp50 n = Mp50(7) / 3, a = Mp50(2) / 5, b = Mp50(11) / 7;
  const Mp50 both = (1 - efla(a, n) * n) * (1 - efla(b, n) * n);
  EXPECT_LT(abs(Mp50(1 - efla(Mp50(a + b), n) * n - both)), Mp50("1e-48"));
  EXPECT_EQ(efla(0.25, 0.0), 0.25);  // the limit
  EXPECT_TRUE(within(4, efla(0.25, 1e-300), 0.25));
  EXPECT_LE(efla(1e6, 4.0) * 4.0, 1);  // any beta contracts
}

// ---- What came before ----

TEST(Shift, ThePreviousRows) {
  const Mat<Rational> X = (Mat<Rational>(3, 2) << 1, 2, 3, 4, 5, 6).finished();
  const Vec<Rational> before = (Vec<Rational>(2) << 8, 9).finished();
  EXPECT_TRUE(previous_rows<Rational>(X, before) == (Mat<Rational>(3, 2) << 8, 9, 1, 2, 3, 4).finished());
  EXPECT_EQ(previous_rows<Rational>(Mat<Rational>(0, 2), before).rows(), 0);
}

TEST(Mamba3, Trapezoid) {
  const Trapezoid<double> t = trapezoid(0.5, -2.0, 0.25);
  EXPECT_EQ(t.alpha, std::exp(-1.0));
  EXPECT_TRUE(within(1, t.previous, 0.375 * std::exp(-1.0)));
  EXPECT_EQ(t.current, 0.125);
  EXPECT_EQ(trapezoid(0.5, -2.0, 1.0).previous, 0);  // Mamba-2
}

TEST(Mamba3, ScoresDependOnTheAnglesBetween) {
  Random r(3);
  const Mat<double> Q = random_matrix(6, 5, r), K = random_matrix(6, 5, r), steps = random_matrix(6, 2, r);
  Vec<double> zero = Vec<double>::Zero(2), elsewhere = random_vector(2, r), again = zero, there = elsewhere;
  const Mat<double> scores = rotate_rows(Q, steps, zero) * rotate_rows(K, steps, again).transpose();
  const Mat<double> moved = rotate_rows(Q, steps, elsewhere) * rotate_rows(K, steps, there).transpose();
  EXPECT_LT((scores - moved).cwiseAbs().maxCoeff(), 1e-13);
  EXPECT_TRUE(zero.isApprox(steps.colwise().sum().transpose(), 1e-15));  // carried on

  const double right_angle = 2 * std::atan(1.0);
  const Vec<double> x = (Vec<double>(3) << 3, 4, 7).finished();
  const Vec<double> y = rotate<double>(x, Vec<double>::Constant(1, right_angle));
  EXPECT_LT((y - (Vec<double>(3) << -4, 3, 7).finished()).norm(), 1e-15);
}

TEST(Precondition, ShrinksTheBusyChannels) {
  const Mat<double> K = (Mat<double>(2, 2) << 1, 0, 1, 0).finished();
  Vec<double> A = Vec<double>::Zero(2);
  const Mat<double> Y = write_keys<double>(K, Vec<double>::Constant(2, 0.5), Vec<double>::Constant(2, 1), A);
  EXPECT_TRUE(A == (Vec<double>(2) << 1.5, 0).finished());  // 1, then 0.5 * 1 + 1
  auto M = [](double count) {
    const double x = std::log(count + 1e-6) + 0.2;
    return std::pow(1.5, -x / (1 + std::abs(x)));
  };
  EXPECT_TRUE(within(4, Y(0, 0), M(1)));
  EXPECT_TRUE(within(4, Y(1, 0), M(1.5)));
  EXPECT_LT(Y(1, 0), Y(0, 0));
  EXPECT_EQ(Y(1, 1), 0);
}

TEST(Precondition, StaysInItsRange) {
  for (double count : {0.0, 1e-300, 1e-6, 1.0, 1e6, 1e300}) {
    Vec<double> A = Vec<double>::Constant(1, count);
    const double y =
        write_keys<double>(Mat<double>::Constant(1, 1, 1), Vec<double>::Constant(1, 1), Vec<double>::Zero(1), A)(0, 0);
    EXPECT_TRUE(y > 1 / 1.5 && y < 1.5) << count;
  }
  Vec<double> A = Vec<double>::Zero(1);
  const Preconditioner<double> c{.center = 0, .eps = 1};  // at the centre: M = 1
  EXPECT_EQ(write_keys<double>(Mat<double>::Constant(1, 1, 3), Vec<double>::Zero(1), Vec<double>::Zero(1), A, c)(0, 0),
            3);
}

// ---- Convolution and block ----

TEST(ShortConv, ByHand) {  // weights 1, 10, 100; the last belongs to the token itself
  const Mat<double> X = (Mat<double>(3, 1) << 1, 2, 3).finished(), w = (Mat<double>(1, 3) << 1, 10, 100).finished();
  Mat<double> history = Mat<double>::Zero(2, 1);
  const Mat<double> Y = short_conv<double>(X, w, history);
  EXPECT_TRUE(Y == (Mat<double>(3, 1) << silu(100.), silu(210.), silu(321.)).finished());
  EXPECT_TRUE(history == (Mat<double>(2, 1) << 2, 3).finished());
}

TEST(ShortConv, IsCausalAndGoesOnWhereItStopped) {
  Random r(4);
  const Mat<double> X = random_matrix(9, 3, r), w = random_matrix(3, 4, r);
  const Mat<double> zero = Mat<double>::Zero(3, 3);
  Mat<double> history = zero;
  const Mat<double> Y = short_conv<double>(X, w, history);
  for (Index n = 0; n <= X.rows(); ++n) {
    Mat<double> carried = zero, other = X, ignored = zero;
    other.bottomRows(X.rows() - n).setConstant(7);  // every token from n on replaced
    EXPECT_TRUE(short_conv<double>(other, w, ignored).topRows(n) == Y.topRows(n)) << n;
    EXPECT_TRUE(short_conv<double>(X.topRows(n), w, carried) == Y.topRows(n)) << n;
    EXPECT_TRUE(short_conv<double>(X.bottomRows(X.rows() - n), w, carried) == Y.bottomRows(X.rows() - n)) << n;
    EXPECT_TRUE(carried == history) << n;
  }
}

class BlockTest : public testing::Test {
 protected:
  static constexpr Index D = 10, H = 2, HV = 4, d_k = 3, d_v = 5;
  Random r{5};
  Block<double> w{.H = H,
                  .HV = HV,
                  .d_k = d_k,
                  .d_v = d_v,
                  .norm_in = random_vector(D, r),
                  .W_q = random_matrix(H * d_k, D, r),
                  .W_k = random_matrix(H * d_k, D, r),
                  .W_v = random_matrix(HV * d_v, D, r),
                  .W_z = random_matrix(HV * d_v, D, r),
                  .W_a = random_matrix(HV, D, r),
                  .W_beta = random_matrix(HV, D, r),
                  .W_lambda = random_matrix(HV, D, r),
                  .b_lambda = -0.8,
                  .A_log = random_vector(HV, r),
                  .dt_bias = random_vector(HV, r),
                  .conv_q = random_matrix(H * d_k, 4, r),
                  .conv_k = random_matrix(H * d_k, 4, r),
                  .conv_v = random_matrix(HV * d_v, 4, r),
                  .norm_out = random_vector(d_v, r),
                  .W_o = random_matrix(D, HV* d_v, r),
                  .eps = 1e-6};
  Mat<double> X = random_matrix(11, D, r);

  static bool same(const BlockState<double>& a, const BlockState<double>& b) {
    return a.q == b.q && a.k == b.k && a.v == b.v && a.S == b.S;
  }
};

TEST_F(BlockTest, GoesOnWhereItStopped) {  // F65
  BlockState<double> all(w);
  const Mat<double> Y = block(w, X, all);
  for (Index n = 0; n <= X.rows(); ++n) {
    BlockState<double> s(w);
    Mat<double> parts(X.rows(), D);
    parts.topRows(n) = block<double>(w, X.topRows(n), s);
    parts.bottomRows(X.rows() - n) = block<double>(w, X.bottomRows(X.rows() - n), s);
    EXPECT_LT((parts - Y).norm(), 1e-13 * Y.norm()) << n;
    for (Index j = 0; j < HV; ++j) EXPECT_LT((s.S[j] - all.S[j]).norm(), 1e-13 * all.S[j].norm()) << n;
  }
  BlockState<double> fresh(w);
  const Mat<double> last = block<double>(w, X.bottomRows(1), fresh);  // the history dropped
  EXPECT_GT((last - Y.bottomRows(1)).norm(), 0.01 * Y.norm());
}

TEST_F(BlockTest, IsCausal) {
  BlockState<double> s(w), t(w);
  const Mat<double> Y = block(w, X, s);
  X.bottomRows(4).setConstant(3);
  EXPECT_TRUE(block(w, X, t).topRows(7) == Y.topRows(7));
}

TEST_F(BlockTest, TheOutputGateNeverTouchesTheMemory) {  // F64
  BlockState<double> s(w), t(w), u(w);
  const Mat<double> Y = block(w, X, s);
  w.W_z = random_matrix(HV * d_v, D, r), w.norm_out = random_vector(d_v, r);
  EXPECT_GT((block(w, X, t) - Y).norm(), 0.01 * Y.norm());
  EXPECT_TRUE(same(s, t));
  w.W_z.setZero();  // silu(0) = 0: the gate is shut
  EXPECT_TRUE(block(w, X, u) == X);
  EXPECT_TRUE(same(s, u));
}

TEST_F(BlockTest, LambdaShutIsGatedDeltaNet) {
  BlockState<double> s(w), t(w), u(w);
  const Mat<double> q = block(w, X, s);
  w.W_lambda.setZero(), w.b_lambda = -1e4;
  const Mat<double> shut = block(w, X, t);
  w.W_lambda = {};
  EXPECT_TRUE(block(w, X, u) == shut);
  EXPECT_TRUE(same(t, u));
  EXPECT_FALSE(q == shut);
}

TEST_F(BlockTest, NeighbouringValueHeadsShareAKeyHead) {
  w.W_v.bottomRows(d_v) = w.W_v.middleRows(2 * d_v, d_v);  // value head 3 becomes a copy of head 2 in all but its keys
  w.conv_v.bottomRows(d_v) = w.conv_v.middleRows(2 * d_v, d_v);
  for (Mat<double>* W : {&w.W_a, &w.W_beta, &w.W_lambda}) W->row(3) = W->row(2).eval();
  w.A_log[3] = w.A_log[2], w.dt_bias[3] = w.dt_bias[2];
  BlockState<double> s(w);
  block(w, X, s);
  EXPECT_TRUE(s.S[3] == s.S[2]);
  EXPECT_FALSE(s.S[1] == s.S[2]);
}

TEST_F(BlockTest, NoTokensChangeNothing) {
  BlockState<double> s(w), before(w);
  EXPECT_EQ(block<double>(w, Mat<double>(0, D), s).rows(), 0);
  EXPECT_TRUE(same(s, before));
}

TEST(Hybrid, Layouts) {  // F101
  using Layers = std::vector<LayerKind>;
  EXPECT_EQ(hybrid_h1(4), (Layers{"gated_delta", kWindow, "gated_delta", kWindow}));
  EXPECT_EQ(hybrid_h2(4), (Layers{"mamba2", "gated_delta", kWindow, "mamba2"}));
  EXPECT_EQ(hybrid_window(3), (Layers{"delta", kWindow, "delta"}));
  EXPECT_EQ(hybrid_global(6), (Layers{"delta", kAttention, "delta", kAttention, "delta", "delta"}));
  EXPECT_EQ(hybrid_global(1), Layers{"delta"});
  const Layers model = hybrid_three_to_one("kda", 48);
  EXPECT_EQ(std::ranges::count(model, kAttention), 12);  // F69: a quarter
  EXPECT_EQ(model[3], kAttention);
}

}  // namespace
}  // namespace delta
