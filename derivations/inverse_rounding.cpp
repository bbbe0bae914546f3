// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <Eigen/SVD>

namespace delta {

// # How not to compute (I + L)^{-1}
//
// L is nilpotent, L^C = 0, so (I + L)^{-1} = I - L + L^2 - ... is a finite sum and
//
//     (I - L)(I + L^2)(I + L^4) ...
//
// a short product of matrix products, which is what fast hardware likes. Exactly it is right. In
// floating point the powers of L are larger than the inverse by many orders, and what they cancel
// to is noise. Forward substitution, and doubling the size of the inverted blocks, never form them.

void inverse_rounding(Derivation<Rational>& d) {
  using Eigen::MatrixXd;
  using Eigen::MatrixXf;
  const Index C = d.size("C", 64, 64);

  // ## 1. Three ways to invert
  //
  // Row i of the inverse is e_i less L_i times the rows above.

  const auto substituted = [](const auto& L) {
    auto X = L;
    X.setIdentity();
    for (Index i = 1; i < L.rows(); ++i) X.row(i) -= (L.row(i).head(i) * X.topRows(i)).eval();
    return X;
  };

  // With the blocks of size b on the diagonal inverted in X, the blocks of size 2 b are X - X L_b X,
  // L_b the parts of L that join two of them.

  const auto doubled = [](const auto& L) {
    const Index n = L.rows();
    auto X = L;
    X.setIdentity();
    for (Index b = 1; b < n; b *= 2) {
      auto L_b = L;
      L_b.setZero();
      for (Index i = 0; i + b < n; i += 2 * b) {
        const Index rows = std::min(b, n - i - b);
        L_b.block(i + b, i, rows, b) = L.block(i + b, i, rows, b);
      }
      X -= (X * (L_b * X).eval()).eval();
    }
    return X;
  };

  // The product of powers.

  const auto squared = [](const auto& L) {
    auto X = L, P = L, I = L;
    I.setIdentity();
    X = I - L;
    for (Index m = 2; m < L.rows(); m *= 2) P = (P * P).eval(), X = (X * (I + P)).eval();
    return X;
  };

  // ## 2. Keys that look alike
  //
  // Unit keys with one common cosine, beta = 1: L is that cosine everywhere below the diagonal.

  const auto alike = [](Index n, double cosine) {
    MatrixXd L = MatrixXd::Constant(n, n, cosine);
    L.triangularView<Eigen::Upper>().setZero();
    return L;
  };
  const auto condition = [](const MatrixXd& L) {
    const MatrixXd A = MatrixXd::Identity(L.rows(), L.cols()) + L;
    const Eigen::VectorXd sigma = Eigen::JacobiSVD<MatrixXd>(A).singularValues();
    return sigma(0) / sigma(sigma.size() - 1);
  };
  d.near("D4", "condition number of I + L for 64 identical keys: 82", condition(alike(C, 1)), 82,
         0.5);
  for (const auto& [cosine, at_least] : {std::pair{1., 1e9}, {0.9, 1e8}, {0.5, 10.}}) {
    const MatrixXd L = alike(C, cosine), exact = substituted(L);
    const MatrixXf narrow = L.cast<float>();
    const auto error = [&](const auto& X) {
      return (MatrixXd(X.template cast<double>()) - exact).cwiseAbs().maxCoeff();
    };
    d.floating("D4", "fp32, powers: off by more than 1e9, 1e8, 10 at cosine 1, 0.9, 0.5",
               error(squared(narrow)) > at_least);
    d.near("D4", "fp32, substitution: off by at most 1e-7 at any of them",
           error(substituted(narrow)), 0, 1e-7);
    d.near("D4", "fp32, doubling: the same", error(doubled(narrow)), 0, 1e-7);
  }
  const MatrixXd close = alike(C, 0.99);
  d.floating("D4", "fp64, powers: off by more than 10 at cosine 0.99",
             (squared(close) - substituted(close)).cwiseAbs().maxCoeff() > 10);
  // Why: their entries reach binomial(62, 31) = 4.65e17, beyond the 2^53 of fp64, while those of the
  // inverse are at most 1.

  // ## 3. Condition numbers
  //
  // Keys of no particular direction are harmless, which is why random tests pass:

  MatrixXd K(C, 128);
  for (Index i = 0; i < K.size(); ++i) K.data()[i] = d.random().normal();
  K.rowwise().normalize();
  const auto lower_part = [](MatrixXd L) {
    L.triangularView<Eigen::Upper>().setZero();
    return L;
  };
  d.near("D4", "random unit keys, d = 128, beta = 1: 3.3",
         condition(lower_part(K * K.transpose())), 3.3, 0.4);
  d.near("D4", "keys that are not normalised, beta |k|^2 = 3, C = 32: 2.6e11",
         condition(3 * alike(32, 1)) / 1e11, 2.6, 0.1);

  // Q-Delta on the two tokens of its growing pair, lambda = 3/4, beta = 1: keys (0, 1), (3/5, -4/5),
  // read with (-3/4, 1), (0, -5/4).

  const auto pair = [&](Index n) {
    MatrixXd k(n, 2), x(n, 2);
    for (Index i = 0; i < n; ++i)
      if (i % 2 == 0)
        k.row(i) << 0, 1, x.row(i) << -0.75, 1;
      else
        k.row(i) << 0.6, -0.8, x.row(i) << 0, -1.25;
    return std::pair{k, x};
  };
  for (const auto& [n, entry, cond] :
       {std::tuple{8, 1.7, 33.}, {16, 10., 3.4e2}, {32, 364., 2.3e4}, {64, 4.6e5, 5.9e7}}) {
    const auto& [k, x] = pair(n);
    const MatrixXd L = lower_part(x * k.transpose());
    d.near("D4", "the growing pair: largest entries 1.7, 10, 364, 4.6e5 for C = 8, 16, 32, 64",
           lower_part(substituted(L)).cwiseAbs().maxCoeff() / entry, 1, 0.03);
    d.near("D4", "condition numbers 33, 3.4e2, 2.3e4, 5.9e7", condition(L) / cond, 1, 0.03);
  }

  // The worst case without a period: each key at a right angle to the state, the query against it,
  // lambda = 0.99. The state turns by atan(lambda) at every token.

  MatrixXd k(C, 2), x(C, 2);
  for (Index i = 0; i < C; ++i) {
    const double angle = double(i) * std::atan(0.99), c = std::cos(angle), s = std::sin(angle);
    k.row(i) << -s, c;
    x.row(i) << -s - 0.99 * c, c - 0.99 * s;
  }
  const MatrixXd spiral = lower_part(x * k.transpose());
  d.near("D4", "lambda = 0.99, C = 64: largest entry 1.1e9",
         lower_part(substituted(spiral)).cwiseAbs().maxCoeff() / 1e9, 1.1, 0.05);
  d.near("D4", "condition number 6.4e10", condition(spiral) / 1e10, 6.4, 0.1);

  // ## 4. A large condition number, a small error
  //
  // The entries of the inverse are large where the state itself grows; relative to that state the
  // solve loses nothing. Two rows of values through the growing pair, in fp32, against long double:

  const auto& [keys, readers] = pair(C);
  MatrixXd V(C, 2);
  for (Index i = 0; i < V.size(); ++i) V.data()[i] = double(float(d.random().normal()));
  const auto by_tokens = [&, &keys = keys, &readers = readers]<class F>(F) {
    Eigen::Matrix<F, 2, 2> S;
    S.setZero();
    for (Index t = 0; t < C; ++t) {
      const Eigen::Matrix<F, 2, 1> key = keys.row(t).cast<F>(), reader = readers.row(t).cast<F>();
      S += (V.row(t).transpose().template cast<F>() - S * reader) * key.transpose();
    }
    return MatrixXd(S.template cast<double>());
  };
  MatrixXf Z = V.cast<float>();  // [C x 2]  (I + L) Z = V
  const MatrixXf L = lower_part(readers * keys.transpose()).cast<float>();
  for (Index i = 1; i < C; ++i) Z.row(i) -= (L.row(i).head(i) * Z.topRows(i)).eval();
  const MatrixXd chunk = (Z.transpose() * keys.cast<float>()).cast<double>(),
                 exact = by_tokens(0.0L);
  d.near("D4", "fp32, by tokens: relative error below 5e-6",
         (by_tokens(0.f) - exact).norm() / exact.norm(), 0, 5e-6);
  d.near("D4", "fp32, by one solve with condition number 5.9e7: below 5e-6 too",
         (chunk - exact).norm() / exact.norm(), 0, 5e-6);
}

}  // namespace delta
