// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # What stands around the rule
//
// The rule is a function of q, k, v, alpha and beta. A layer makes them from its input, and makes
// an output from o: projection, a causal convolution of width 4, SiLU, normalised queries and
// keys, gates; then RMSNorm, an output gate and a projection. These steps need exp and sqrt, so
// they are checked in double precision.

static double silu(double x) { return x / (1 + std::exp(-x)); }
static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Depthwise: channel c of token t sees the tokens t-3 .. t of its own channel.
static Mat<double> convolved(const Mat<double>& X,
                             const Mat<double>& kernel) {  // [L x d], [4 x d]
  Mat<double> Y = Mat<double>::Zero(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t)
    for (Index i = 0; i < 4 && i <= t; ++i) Y.row(t) += X.row(t - i).cwiseProduct(kernel.row(i));
  return Y;
}

void block(Derivation<Rational>& d) {
  using T = Rational;
  const Index L = d.size("L", 6, 6), n = d.size("d", 3, 3);
  Random& r = d.random();
  const auto normal = [&](Index rows, Index cols) {
    Mat<double> M(rows, cols);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j) M(i, j) = r.normal();
    return M;
  };

  // ## 1. In front of the rule

  const Mat<double> h = normal(L, n), kernel = normal(4, n);
  const Mat<double> pre = convolved(h, kernel);
  Mat<double> k = pre.unaryExpr(&silu);
  for (Index t = 0; t < L; ++t) k.row(t) /= k.row(t).norm();
  for (Index t = 0; t < L; ++t)
    d.near("F98", "keys after SiLU and L2 have length 1", k.row(t).norm(), 1, 1e-15);
  d.near("F99", "k = SiLU(W x) / |SiLU(W x)| has length 1", k.row(0).norm(), 1, 1e-15);

  // The convolution is causal. An input changed at token 4 leaves the tokens before it bit for
  // bit as they were:

  Mat<double> changed = h;
  changed.row(3) *= -2;
  const Mat<double> other = convolved(changed, kernel);
  d.holds("F98", "a later token never moves an earlier one", other.topRows(3) == pre.topRows(3));
  d.holds("F98", "the token itself and the next three see it",
          (other.bottomRows(L - 3).array() != pre.bottomRows(L - 3).array()).all());

  // The older map is 1 + ELU, which is positive, with an L1 norm. Entries that sum to one have
  // |k|^2 <= 1, with equality only for a coordinate vector: such keys are shorter than one and
  // beta |k|^2 stays below beta.

  for (int i = 0; i < 8; ++i) {
    Vec<T> a(3);
    for (Index j = 0; j < 3; ++j) a[j] = d.fraction();
    a /= T(a.sum());
    d.at_most("F99", "a positive key with L1 norm 1 has |k|^2 <= 1", a.dot(a), T(1));
  }
  Vec<T> corner = Vec<T>::Zero(3);
  corner[1] = 1;
  d.equal("F99", "equality at a coordinate vector", corner.dot(corner), T(1));
  const auto elu1 = [](double x) { return x > 0 ? 1 + x : std::exp(x); };
  d.holds("F99", "1 + ELU is positive", elu1(-5) > 0 && elu1(0) == 1 && elu1(2) == 3);
  d.near("F99", "beta = sigmoid(w x) is in (0, 1); at 0 it is 1/2", sigmoid(0), 0.5, 0);

  // ## 2. The rule, twice
  //
  // Six tokens with three channels: the recurrence against its unrolled form in double precision.

  const Mat<double> V = normal(L, n), q = normal(L, n);
  Vec<double> alpha(L), beta(L);
  for (Index t = 0; t < L; ++t) alpha[t] = sigmoid(r.normal() + 2), beta[t] = sigmoid(r.normal());
  const auto recurrent = [&](double scale) {
    Mat<double> S = Mat<double>::Zero(n, n);
    for (Index t = 0; t < L; ++t) {
      const Vec<double> key = k.row(t).transpose(), v = scale * V.row(t).transpose();
      S *= alpha[t];
      S += beta[t] * (v - S * key) * key.transpose();
    }
    return S;
  };
  const Mat<double> S = recurrent(1);
  Mat<double> unrolled = Mat<double>::Zero(n, n), tail = Mat<double>::Identity(n, n);
  for (Index t = L - 1; t >= 0; --t) {
    unrolled += beta[t] * (V.row(t).transpose() * k.row(t)) * tail;
    tail = alpha[t] * (Mat<double>::Identity(n, n) - beta[t] * k.row(t).transpose() * k.row(t)) *
           tail;
  }
  d.near("F66", "recurrence and unrolled form, fp64: at most 1e-15 apart",
         (S - unrolled).cwiseAbs().maxCoeff(), 0, 1e-15);
  Vec<double> unit(n);
  unit << 1, 0, 0;
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
  Vec<double> gate(n), closed = Vec<double>::Zero(n);
  for (Index j = 0; j < n; ++j) gate[j] = silu(r.normal());
  const Vec<double> out = o.cwiseProduct(gate), shut = o.cwiseProduct(closed);

  // The gate scales what has been read. It does not enter the recurrence: with the gate shut the
  // output is zero and the state is the state. Values that are doubled, in contrast, double the
  // state.

  d.holds("F64", "a shut gate silences the output",
          (shut.array() == 0).all() && (out.array() != 0).all());
  d.holds("F64", "and the state, which has never seen it, is bit for bit the same",
          recurrent(1) == S);
  d.holds("F64", "while doubled values double it", recurrent(2) == Mat<double>(2 * S));

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
  d.holds("F101", "DeltaNet with windows, 8 layers",
          layers(8, [](int i) { return i % 2 ? 'D' : 'W'; }) == "DWDWDWDW");
  d.holds("F101", "DeltaNet with two full layers, 24 layers: 2 and 13",
          layers(24, [](int i) { return i == 2 || i == 24 / 2 + 1 ? 'A' : 'D'; }) ==
              "DADDDDDDDDDDADDDDDDDDDDD");
  d.holds("F101", "H1", layers(6, [](int i) { return "GW"[(i - 1) % 2]; }) == "GWGWGW");
  d.holds("F101", "H2", layers(6, [](int i) { return "MGW"[(i - 1) % 3]; }) == "MGWMGW");
  d.holds("F101", "three to one",
          layers(8, [](int i) { return i % 4 ? 'G' : 'A'; }) == "GGGAGGGA");

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
    d.holds("F01", "the output is between the smallest and the largest value",
            (o_t.transpose().array() <= V.topRows(t + 1).colwise().maxCoeff().array() + 1e-15)
                    .all() &&
                (o_t.transpose().array() >= V.topRows(t + 1).colwise().minCoeff().array() - 1e-15)
                    .all());
  }
}

}  // namespace delta
