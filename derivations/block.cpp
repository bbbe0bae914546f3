// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # What stands around the rule
//
// The rule is a function of q, k, v, alpha and beta. A layer makes them from its input, and makes
// an output from o: projection, a causal convolution of width 4, SiLU, normalised queries and
// keys, gates; then RMSNorm, an output gate and a projection. What needs exp or sqrt is checked in
// double precision; what does not, exactly.

static double silu(double x) { return x / (1 + std::exp(-x)); }
static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Depthwise: channel c of token t sees the tokens t-3 .. t of its own channel.
template <Ring T>
static Mat<T> convolved(const Mat<T>& X, const Mat<T>& kernel) {  // [L x d], [4 x d]
  Mat<T> Y = Mat<T>::Zero(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t)
    for (Index i = 0; i < 4 && i <= t; ++i) Y.row(t) += X.row(t - i).cwiseProduct(kernel.row(i));
  return Y;
}

template <Field T> void block(Derivation<T>& d) {
  const Index L = d.size("L", 8, 12), n = d.size("d", 3, 8);
  Random& r = d.random();
  const auto normal = [&](Index rows, Index cols) {
    Mat<double> M(rows, cols);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) M(i, j) = r.normal();
    return M;
  };

  // ## 1. In front of the rule

  const Mat<double> h = normal(L, n), kernel = normal(4, n);
  const Mat<double> pre = convolved<double>(h, kernel);
  Mat<double> k = pre.unaryExpr(&silu);
  for (Index t = 0; t < L; ++t) k.row(t) /= k.row(t).norm();
  for (Index t = 0; t < L; ++t)
    d.near("F98", "keys after SiLU and L2 have length 1", k.row(t).norm(), 1, 1e-15);
  d.near("F99", "k = SiLU(W x) / |SiLU(W x)| has length 1", k.row(0).norm(), 1, 1e-15);

  // The convolution is causal. An input changed at token 4 leaves the tokens before it as they
  // were, and moves the token itself and the three behind it, as far as its width reaches:

  const Mat<T> x = d.matrix(L, n), weights = d.matrix(4, n);  // [L x d], [4 x d]
  Mat<T> changed = x;
  changed.row(3) *= T(-2);
  const Mat<T> y = convolved<T>(x, weights), moved = convolved<T>(changed, weights);  // [L x d]
  d.show("y", y, "with token 4 changed", moved);
  d.equal("F98", "a later token never moves an earlier one", moved.topRows(3), y.topRows(3));
  for (Index t = 3; t < std::min<Index>(L, 7); ++t)
    d.differs("F98", "the token itself and the next three see it", moved.row(t), y.row(t));
  if (L > 7)
    d.equal("F98", "the fourth behind it does not, nor any later", moved.bottomRows(L - 7),
            y.bottomRows(L - 7));

  // The older map is 1 + ELU, which is positive, with an L1 norm. Entries that sum to one have
  // |k|^2 <= 1, with equality only for a coordinate vector: such keys are shorter than one and
  // beta |k|^2 stays below beta.

  if constexpr (ordered<T>)
    for (int i = 0; i < 8; ++i) {
      Vec<T> a = d.fractions(3);
      a /= T(a.sum());
      d.at_most("F99", "a positive key with L1 norm 1 has |k|^2 <= 1", a.dot(a), T(1));
    }
  Vec<T> corner = Vec<T>::Zero(3);
  corner[1] = T(1);
  d.equal("F99", "equality at a coordinate vector", corner.dot(corner), T(1));
  const auto elu1 = [](double x) { return x > 0 ? 1 + x : std::exp(x); };
  d.floating("F99", "1 + ELU is positive", elu1(-5) > 0 && elu1(0) == 1 && elu1(2) == 3);
  d.near("F99", "beta = sigmoid(w x) is in (0, 1); at 0 it is 1/2", sigmoid(0), 0.5, 0);

  // ## 2. The rule, twice
  //
  // The tokens of above: the recurrence against its unrolled form, in double precision.

  const Mat<double> V = normal(L, n), q = normal(L, n);
  Vec<double> alpha(L), beta(L);
  for (Index t = 0; t < L; ++t) alpha[t] = sigmoid(r.normal() + 2), beta[t] = sigmoid(r.normal());
  Mat<double> S = Mat<double>::Zero(n, n);
  for (Index t = 0; t < L; ++t) {
    const Vec<double> key = k.row(t).transpose(), v = V.row(t).transpose();
    S *= alpha[t];
    S += beta[t] * (v - S * key) * key.transpose();
  }
  Mat<double> unrolled = Mat<double>::Zero(n, n), tail = Mat<double>::Identity(n, n);
  for (Index t = L - 1; t >= 0; --t) {
    unrolled += beta[t] * (V.row(t).transpose() * k.row(t)) * tail;
    tail = alpha[t] * (Mat<double>::Identity(n, n) - beta[t] * k.row(t).transpose() * k.row(t)) *
           tail;
  }
  d.near("F66", "recurrence and unrolled form, fp64: at most 1e-15 apart",
         (S - unrolled).cwiseAbs().maxCoeff(), 0, 1e-15);
  Vec<double> unit = Vec<double>::Zero(n);
  unit[0] = 1;
  const Vec<double> value = V.row(0).transpose();
  d.near("F66", "unit key, beta = 1: the overwrite has no error",
         ((S + (value - S * unit) * unit.transpose()) * unit - value).cwiseAbs().maxCoeff(), 0,
         1e-15);
  d.remark("F66",
           "a chapter reports 4.44e-16 (two units in the last place of 1) for such a test, "
           "without its log");

  // ## 3. Behind the rule
  //
  // q is normalised and divided by sqrt(d); the output is normalised by its root mean square,
  // gated and projected.

  Vec<double> query = q.row(0).transpose();
  query /= query.norm() * std::sqrt(double(n));
  d.near("F64", "a query after L2 and 1 / sqrt(d) has length 1 / sqrt(d)", query.norm(),
         1 / std::sqrt(double(n)), 1e-15);
  Vec<double> o = S * query;
  o /= std::sqrt(o.squaredNorm() / double(n));
  d.near("F64", "after RMSNorm the mean square is 1", o.squaredNorm() / double(n), 1, 1e-14);

  // The gate scales what has been read. It does not enter the recurrence: two runs with different
  // gates give different outputs and one state. Values that are doubled, in contrast, double the
  // state.

  const Mat<T> keys = d.matrix(L, n), values = d.matrix(L, n),
               queries = d.matrix(L, n);                             // [L x d]
  const Vec<T> decays = d.fractions(L), strengths = d.fractions(L);  // [L]
  const auto run = [&](const Mat<T>& gates, const T& scale) {  // the outputs, and below them S
    Mat<T> state = Mat<T>::Zero(n, n), out(L + n, n);
    for (Index t = 0; t < L; ++t) {
      const Vec<T> key = keys.row(t).transpose(), v = scale * values.row(t).transpose();
      state *= decays[t];
      state += strengths[t] * (v - state * key) * key.transpose();
      out.row(t) =
          gates.row(t).cwiseProduct((state * Vec<T>(queries.row(t).transpose())).transpose());
    }
    out.bottomRows(n) = state;
    return out;
  };
  const Mat<T> open = run(Mat<T>::Ones(L, n), T(1)), gated = run(d.matrix(L, n), T(1));
  const Mat<T> shut = run(Mat<T>::Zero(L, n), T(1)), doubled = run(Mat<T>::Ones(L, n), T(2));
  d.equal("F64", "a shut gate silences every output", shut.topRows(L), Mat<T>::Zero(L, n));
  d.differs("F64", "another gate is another output", gated.topRows(L), open.topRows(L));
  d.equal("F64", "and the state, which has never seen the gate, is the same", gated.bottomRows(n),
          shut.bottomRows(n));
  d.equal("F64", "while doubled values double it", doubled.bottomRows(n),
          T(2) * open.bottomRows(n));

  // ## 4. Layer lists
  //
  // Hybrids alternate layers. Counted from 1: sliding windows at every other layer, or full
  // attention at layers 2 and N / 2 + 1; H1 repeats (Gated DeltaNet, window), H2 (Mamba2, Gated
  // DeltaNet, window); three to one repeats (state, state, state, attention).

  const auto layers = [](int N, auto&& kind) {
    std::string s;
    for (int i = 1; i <= N; ++i) s += kind(i);
    return s;
  };
  d.lists("F101", "DeltaNet with windows, 8 layers",
          layers(8, [](int i) { return i % 2 ? 'D' : 'W'; }), "DWDWDWDW");
  d.lists("F101", "DeltaNet with two full layers, 24 layers: 2 and 13",
          layers(24, [](int i) { return i == 2 || i == 24 / 2 + 1 ? 'A' : 'D'; }),
          "DADDDDDDDDDDADDDDDDDDDDD");
  d.lists("F101", "H1", layers(6, [](int i) { return "GW"[(i - 1) % 2]; }), "GWGWGW");
  d.lists("F101", "H2", layers(6, [](int i) { return "MGW"[(i - 1) % 3]; }), "MGWMGW");
  d.lists("F101", "three to one", layers(8, [](int i) { return i % 4 ? 'G' : 'A'; }), "GGGAGGGA");

  // ## 5. Softmax attention, for reference
  //
  // The weights of the past values are positive, sum to one and need the whole cache; here
  // without 1 / sqrt(d).

  for (Index t = 0; t < L; ++t) {
    double sum = 0;
    Vec<double> weighted = Vec<double>::Zero(n), first = Vec<double>::Zero(n);
    for (Index i = 0; i <= t; ++i) {
      const double weight = std::exp(k.row(i).dot(q.row(t)));
      sum += weight;
      weighted += weight * V.row(i).transpose();
      first += weight * Vec<double>::Ones(n);
    }
    d.near("F01", "the weights of one output sum to 1", (first / sum).mean(), 1, 1e-15);
    const Vec<double> o_t = weighted / sum;
    d.floating(
        "F01", "the output is between the smallest and the largest value",
        (o_t.transpose().array() <= V.topRows(t + 1).colwise().maxCoeff().array() + 1e-15)
                .all() &&
            (o_t.transpose().array() >= V.topRows(t + 1).colwise().minCoeff().array() - 1e-15)
                .all());
  }
}

template void block(Derivation<Rational>&);
template void block(Derivation<Generic>&);

}  // namespace delta
