// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <Eigen/SVD>

namespace delta {

// # The inverse (I + L)^{-1}: what its entries are, and how not to compute it
//
// Every chunk form solves with I + L. Its inverse is not a black box: each entry is one key,
// carried through the transitions of the tokens between, read by a later token. This bounds the
// entries for unit keys, and says when the bound fails.

template <Ring T> void inverse(Derivation<T>& d) {
  const Index C = d.size("C", 4, 32), d_k = d.size("d_k", 3, 24);

  const Mat<T> K = d.matrix(C, d_k), X = d.matrix(C, d_k);                      // [C x d_k]
  const Vec<T> beta = d.fractions(C);                                           // [C]
  const Mat<T> L = strictly_lower<T>(beta.asDiagonal() * (X * K.transpose()));  // [C x C]
  const Mat<T> inv = solve_unit_lower<T>(L, Mat<T>::Identity(C, C));            // [C x C]
  d.show("L", L, "(I + L)^{-1}", inv);

  // ## 1. The entries
  //
  //     entry (i, j) = -beta_i k_j^T A_{j+1} ... A_{i-1} x_i    for j < i,    A_t = I - beta_t
  //     x_t k_t^T.

  Mat<T> entries = Mat<T>::Identity(C, C);
  for (Index i = 0; i < C; ++i) {
    Vec<T> probe = X.row(i).transpose();  // A_{j+1} ... A_{i-1} x_i
    for (Index j = i - 1; j >= 0; --j) {
      const Vec<T> k = K.row(j).transpose(), x = X.row(j).transpose();
      entries(i, j) = -beta[i] * k.dot(probe);
      probe -= beta[j] * k.dot(probe) * x;  // A_j probe
    }
  }
  d.equal("D4", "entry (i, j) = -beta_i k_j^T A_{j+1} ... A_{i-1} x_i", entries, inv);
  // Why: column j of the inverse answers a unit write at token j, z_i = -beta_i (what x_i reads
  // of it and of its consequences), and A_{j+1} ... A_{i-1} is what has happened to the key in
  // between.

  // For X = K, unit keys and beta in [0, 2] each A has norm at most 1, so |entry| <= beta_i.

  if constexpr (ordered<T>) {
    Mat<T> unit(8, 3);
    for (Index i = 0; i < 8; ++i) unit.row(i) = d.unit(3).transpose();
    const Vec<T> b = d.fractions(8);
    const Mat<T> small = solve_unit_lower<T>(
        strictly_lower<T>(b.asDiagonal() * (unit * unit.transpose())), Mat<T>::Identity(8, 8));
    for (Index i = 0; i < 8; ++i)
      for (Index j = 0; j < i; ++j)
        d.at_most("D4", "unit keys, beta in [0, 2]: |entry (i, j)| <= beta_i", abs(small(i, j)),
                  b[i]);
  }

  // ## 2. Identical keys: a harmless inverse, and powers that are not
  //
  // beta = 1 and one key for all tokens: L is all ones below the diagonal. The inverse has
  // entries 1 and -1 next to each other and zeros elsewhere. The powers of L, of which a Neumann
  // series is made, hold binomial coefficients.

  const Index n = ordered<T> ? 64 : 16;
  Mat<T> ones = Mat<T>::Zero(n, n);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < i; ++j) ones(i, j) = T(1);
  const Mat<T> exact = solve_unit_lower<T>(ones, Mat<T>::Identity(n, n));
  Mat<T> bidiagonal = Mat<T>::Identity(n, n);
  for (Index i = 1; i < n; ++i) bidiagonal(i, i - 1) = T(-1);
  d.equal("D4", "identical keys, beta = 1: 1 on the diagonal, -1 below it, 0 elsewhere", exact,
          bidiagonal);

  if constexpr (ordered<T>) {
    Mat<T> power = ones;
    T largest(0);
    for (Index m = 2; m < n; ++m) {
      power = power * ones;
      largest = std::max<T>(largest, power(n - 1, 0));
    }
    T binomial(1);
    for (int i = 1; i <= 31; ++i) binomial = binomial * (31 + i) / i;
    d.equal("D4", "C = 64: the largest entry of a power of L is binomial(62, 31)", largest,
            binomial);
    d.near("D4", "which is 4.65e17", Scalar<T>::to_double(binomial), 4.65e17, 5e14);
    T in_half(1);
    for (int i = 1; i <= 15; ++i) in_half = in_half * (15 + i) / i;
    d.less("D4", "in half precision it overflows from C = 32 on: binomial(30, 15) > 65504",
           T(65504), in_half);

    // ## 3. What floating point makes of it
    //
    // (I + L)^{-1} = (I - L)(I + L^2)(I + L^4) ... by squaring, against forward substitution.

    using Eigen::MatrixXd;
    using Eigen::MatrixXf;
    const auto gram = [](Index size,
                         double cosine) {  // unit keys with one common overlap, beta = 1
      MatrixXd M = MatrixXd::Constant(size, size, cosine);
      M.triangularView<Eigen::Upper>().setZero();
      return M;
    };
    const auto substituted = [](const auto& M) {
      auto Y = M;
      Y.setIdentity();
      for (Index i = 1; i < M.rows(); ++i) Y.row(i) -= (M.row(i).head(i) * Y.topRows(i)).eval();
      return Y;
    };
    const auto squared = [](const auto& M) {
      auto Y = M, P = M, I = M;
      I.setIdentity();
      Y = I - M;
      for (Index m = 2; m < M.rows(); m *= 2) P = (P * P).eval(), Y = (Y * (I + P)).eval();
      return Y;
    };
    const MatrixXd same = gram(64, 1), near_same = gram(64, 0.99);
    const auto error = [&](const MatrixXd& got, const MatrixXd& of) {
      return (got - substituted(of)).cwiseAbs().maxCoeff();
    };
    const auto condition = [&](const MatrixXd& M) {
      const MatrixXd A = MatrixXd::Identity(M.rows(), M.cols()) + M;
      const Eigen::VectorXd sigma = Eigen::JacobiSVD<MatrixXd>(A).singularValues();
      return sigma(0) / sigma(sigma.size() - 1);
    };
    d.near("D4", "condition number of I + L for 64 identical keys: 82", condition(same), 82, 0.5);
    d.holds("D4", "squaring in fp32 is off by more than 1e9",
            error(squared(MatrixXf(same.cast<float>())).template cast<double>(), same) > 1e9);
    d.holds("D4", "substitution in fp32 is exact here",
            error(substituted(MatrixXf(same.cast<float>())).template cast<double>(), same) == 0);
    d.holds("D4", "squaring in fp64 is off by more than 1 at cosine 0.99",
            error(squared(near_same), near_same) > 1);
    d.holds("D4", "substitution in fp32 stays below 1e-6 there",
            error(substituted(MatrixXf(near_same.cast<float>())).template cast<double>(),
                  near_same) < 1e-6);

    // ## 4. When the entries themselves explode
    //
    // Keys that are not normalised: identical keys with beta |k|^2 = 3 give entries -3
    // (-2)^{i-j-1}.

    const Mat<T> threes = T(3) * ones.topLeftCorner(32, 32);
    const Mat<T> large = solve_unit_lower<T>(threes, Mat<T>::Identity(32, 32));
    T two(1);
    for (int i = 0; i < 30; ++i) two *= T(-2);
    d.equal("D4", "beta |k|^2 = 3, C = 32: entry (31, 0) = -3 (-2)^30 = -3221225472",
            large(31, 0), T(-3) * two);
    d.near("D4", "and the condition number is 2.6e11",
           condition(3 * same.topLeftCorner(32, 32)) / 1e11, 2.6, 0.1);

    // And Q-Delta, on the two tokens of `exploding_state` (beta = 1, lambda = 3/4):

    for (const auto& [size, printed, slack] :
         {std::tuple{8, 1.7, 0.05}, {16, 10., 0.5}, {32, 364., 0.5}, {64, 4.6e5, 0.05e5}}) {
      Mat<T> k(size, 2), x(size, 2);
      for (Index i = 0; i < size; ++i) {
        if (i % 2 == 0)
          k.row(i) << T(0), T(1), x.row(i) << T(-3) / 4, T(1);
        else
          k.row(i) << T(3) / 5, T(-4) / 5, x.row(i) << T(0), T(-5) / 4;
      }
      const Mat<T> Y =
          solve_unit_lower<T>(strictly_lower<T>(x * k.transpose()), Mat<T>::Identity(size, size));
      T most(0);
      for (Index i = 0; i < size; ++i)
        for (Index j = 0; j < i; ++j) most = std::max<T>(most, abs(Y(i, j)));
      d.near("D4",
             "Q-Delta's growing pair: largest entries 1.7, 10, 364, 4.6e5 for C = 8, 16, 32, 64",
             Scalar<T>::to_double(most), printed, slack);
    }
  }
}

template void inverse(Derivation<Rational>&);
template void inverse(Derivation<Generic>&);

}  // namespace delta
