// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The inverse (I + L)^{-1}: what its entries are
//
// Every chunk form solves with I + L. Its inverse is not a black box: each entry is one key,
// carried through the transitions of the tokens between, read by a later token. This bounds the
// entries for unit keys, and says when the bound fails.

template <Field T> void inverse(Derivation<T>& d) {
  const Index C = d.size("C", 4, 32), d_k = d.size("d_k", 3, 24);

  const Mat<T> K = d.matrix(C, d_k), X = d.matrix(C, d_k);                      // [C x d_k]
  const Vec<T> beta = d.fractions(C);                                           // [C]
  const Mat<T> L = strictly_lower<T>(beta.asDiagonal() * (X * K.transpose()));  // [C x C]
  const Mat<T> inv = solve_unit_lower<T>(L, Mat<T>::Identity(C, C));            // [C x C]
  d.show("L", L, "(I + L)^{-1}", inv);

  // ## 1. The entries
  //
  //     entry (i, j) = -beta_i k_j^T A_{j+1} ... A_{i-1} x_i    for j < i,
  //     A_t = I - beta_t x_t k_t^T.

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

  const Index n = 64;
  Mat<T> ones = Mat<T>::Zero(n, n);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < i; ++j) ones(i, j) = T(1);
  const Mat<T> exact = solve_unit_lower<T>(ones, Mat<T>::Identity(n, n));
  Mat<T> bidiagonal = Mat<T>::Identity(n, n);
  for (Index i = 1; i < n; ++i) bidiagonal(i, i - 1) = T(-1);
  d.equal("D4", "identical keys, beta = 1: 1 on the diagonal, -1 below it, 0 elsewhere", exact,
          bidiagonal);

  Vec<T> column = ones.col(0);  // the first column of L^m, m = 1
  T binomial(1);                // binomial(62, m - 1)
  for (int m = 1; m < 63; ++m) {
    d.equal("D4", "C = 64: the corner entry of L^m is binomial(62, m - 1)", column[n - 1],
            binomial);
    if (m == 32) d.show("corner of L^32", binomial);
    column = ones * column;
    binomial = binomial * T(63 - m) / T(m);
  }
  // Why: L^m counts the ways down from row i to row j in m steps; with the two ends fixed, m - 1 rows
  // are chosen among the 62 between. For m = 32 there are 4.65e17.

  if constexpr (ordered<T>) {
    T in_half(1);
    for (int i = 1; i <= 15; ++i) in_half = in_half * (15 + i) / i;
    d.less("D4", "in half precision it overflows from C = 32 on: binomial(30, 15) > 65504",
           T(65504), in_half);
  }

  // What floating point makes of such powers is the subject of `inverse_rounding`.

  // ## 3. When the entries themselves explode
  //
  // Keys that are not normalised: identical keys with beta |k|^2 = 3 give entries -3
  // (-2)^{i-j-1}.

  const Mat<T> large =
      solve_unit_lower<T>(T(3) * ones.topLeftCorner(32, 32), Mat<T>::Identity(32, 32));
  Mat<T> powers = Mat<T>::Identity(32, 32);
  for (Index j = 0; j < 32; ++j) {
    T entry(-3);
    for (Index i = j + 1; i < 32; ++i, entry *= T(-2)) powers(i, j) = entry;
  }
  d.equal("D4", "beta |k|^2 = 3: entry (i, j) = -3 (-2)^{i-j-1}", large, powers);
  d.equal("D4", "so at C = 32 the corner is -3 (-2)^30 = -3221225472", large(31, 0),
          T(-3) * T(1073741824));
  // Why: each token leaves 1 - 3 = -2 of what is stored under the common key.
}

template void inverse(Derivation<Rational>&);
template void inverse(Derivation<Generic>&);

}  // namespace delta
