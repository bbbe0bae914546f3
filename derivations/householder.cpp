// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # From generalised Householder matrices to WY
//
// One step of the delta rule multiplies the state from the right by A = I - beta k k^T. This
// matrix is the identity but for one direction. A product of such matrices is the identity but
// for as many directions as it has factors, and stays that cheap: it is never formed as a d x d
// matrix.

template <Field T> void householder(Derivation<T>& d) {
  const Index r = d.size("r", 3, 32), d_k = d.size("d_k", 4, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> K = d.matrix(r, d_k), V = d.matrix(r, d_v);  // [r x d_k], [r x d_v]
  const Vec<T> beta = d.fractions(r);                       // [r]
  const Mat<T> S0 = d.matrix(d_v, d_k);                     // [d_v x d_k]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);

  // ## 1. One factor

  const Vec<T> k = K.row(0).transpose();       // [d_k]
  const T b = beta[0], n = k.dot(k);           // beta, |k|^2
  const Mat<T> A = I - b * k * k.transpose();  // [d_k x d_k]
  d.show("k", k, "beta", b, "A", A);

  const Vec<T> probe = d.vector(d_k);
  const Vec<T> y = probe - (probe.dot(k) / n) * k;  // orthogonal to k
  d.equal("F28", "A k = (1 - beta |k|^2) k", A * k, (T(1) - b * n) * k);
  d.equal("F28", "A y = y for y orthogonal to k", A * y, y);

  // The characteristic polynomial, det(z I - A) = (z - 1)^{d-1} (z - 1 + beta |k|^2), by elimination
  // at a random z, in at most four channels:

  const Index m = std::min<Index>(d_k, 4);
  const Vec<T> short_k = k.head(m);
  const T z = d.integer() + T(7);
  Mat<T> E = (z - T(1)) * Mat<T>::Identity(m, m) + b * short_k * short_k.transpose();  // z I - A
  T determinant(1), expected = z - T(1) + b * short_k.dot(short_k);
  for (Index j = 1; j < m; ++j) expected *= z - T(1);
  for (Index j = 0; j < m; ++j) {  // the pivots are not zero at a generic z
    determinant *= E(j, j);
    for (Index i = j + 1; i < m; ++i) E.row(i) -= (E(i, j) / E(j, j)) * Mat<T>(E.row(j));
  }
  d.equal("F28", "det(z I - A) = (z - 1)^{d-1} (z - 1 + beta |k|^2)", determinant, expected);
  // Why: k and the d - 1 directions orthogonal to it are all the eigenvectors there can be. For a
  // unit key and beta in [0, 1] every eigenvalue lies in [0, 1].

  const Vec<T> u = d.unit(d_k);
  if constexpr (ordered<T>) {
    const T eigenvalue = T(1) - b * u.dot(u);
    d.at_most("F28", "unit key, beta in (0, 1): 0 <= 1 - beta", T(0), eigenvalue);
    d.at_most("F28", "unit key, beta in (0, 1): 1 - beta <= 1", eigenvalue, T(1));
  }

  // ## 2. Projector, reflection, and neither

  const Mat<T> P1 = I - u * u.transpose();  // beta = 1, unit key
  d.equal("F29", "beta = 1, unit key: P^2 = P", P1 * P1, P1);
  d.equal("F29", "P^T = P", P1.transpose(), P1);
  d.equal("F29", "P k = 0: the key is erased, the rest is kept", P1 * u, Vec<T>::Zero(d_k));

  const auto defect = [&](const T& s) {  // A A^T - I for the strength s
    const Mat<T> M = I - s * k * k.transpose();
    return Mat<T>(M * M.transpose() - I);
  };
  d.equal("F30", "A A^T - I = beta (beta |k|^2 - 2) k k^T", defect(b),
          (b * (b * n - T(2))) * k * k.transpose());
  d.equal("F30", "orthogonal for beta |k|^2 = 2, a Householder reflection", defect(T(2) / n),
          Mat<T>::Zero(d_k, d_k));
  d.equal("F30", "and for beta = 0", defect(T(0)), Mat<T>::Zero(d_k, d_k));
  d.differs("F30", "otherwise not: beta |k|^2 = 1 is no rotation", defect(T(1) / n),
            Mat<T>::Zero(d_k, d_k));

  // ## 3. Unrolling r steps
  //
  // P^r = A_1 A_2 ... A_r in ascending order, because each step multiplies from the right, and
  // H^r = H^{r-1} A_r + beta_r v_r k_r^T. Then S^r = S_0 P^r + H^r.

  Mat<T> S = S0, P = I, H = Mat<T>::Zero(d_v, d_k), reversed = I;
  for (Index i = 0; i < r; ++i) {
    const Mat<T> A_i = I - beta[i] * K.row(i).transpose() * K.row(i);  // [d_k x d_k]
    const Mat<T> B_i = beta[i] * V.row(i).transpose() * K.row(i);      // [d_v x d_k]
    S = S * A_i + B_i;
    P = P * A_i;
    H = H * A_i + B_i;
    reversed = A_i * reversed;
    if (i < 3) d.equal("F33", "S^r = S_0 P^r + H^r, r = 1, 2, 3", S0 * P + H, S);
  }
  d.equal("F33", "S^r = S_0 P^r + H^r at the end", S0 * P + H, S);
  d.differs("F33", "descending order A_r ... A_1 gives another product", reversed, P);

  // ## 4. WY: the product as a sum of r outer products
  //
  // Suppose P^{r-1} = I - sum_{i<r} w_i k_i^T. Then
  //
  //     P^r = P^{r-1} - (beta_r P^{r-1} k_r) k_r^T,
  //     w_r = beta_r P^{r-1} k_r = beta_r (k_r - sum_{i<r} w_i (k_i . k_r)),    w_1 = beta_1 k_1.

  Mat<T> W(r, d_k), U(r, d_v);
  for (Index j = 0; j < r; ++j) {
    W.row(j) = K.row(j), U.row(j) = V.row(j);
    for (Index i = 0; i < j; ++i) {
      const T overlap = K.row(i).dot(K.row(j));  // k_i . k_j
      W.row(j) -= overlap * W.row(i);
      U.row(j) -= overlap * U.row(i);
    }
    W.row(j) *= beta[j], U.row(j) *= beta[j];
  }
  d.show("W", W, "U", U, "P", P);

  d.equal("F34", "P^r = I - W^T K", I - W.transpose() * K, P);
  d.differs("F34", "the product in descending order is not I - W^T K", I - W.transpose() * K,
            reversed);
  d.equal("F34", "it is the transpose, I - K^T W", I - K.transpose() * W, reversed);
  d.equal("F35", "H^r = U^T K, u_r = beta_r (v_r - sum_{i<r} u_i (k_i . k_r))", U.transpose() * K,
          H);
  // Why: H^r = H^{r-1} + beta_r (v_r - H^{r-1} k_r) k_r^T, and H^{r-1} k_r = sum_{i<r} u_i
  // (k_i . k_r).

  // ## 5. The state after r steps, from the first one

  for (Index j = 1; j <= std::min<Index>(r, 4); ++j) {
    Mat<T> direct = S0, by_rows = S0;
    for (Index i = 0; i < j; ++i) {
      const Vec<T> key = K.row(i).transpose(), value = V.row(i).transpose();
      direct += beta[i] * (value - direct * key) * key.transpose();
      by_rows += (U.row(i).transpose() - S0 * Vec<T>(W.row(i).transpose())) * K.row(i);
    }
    d.equal("F36", "S^r = S_0 + sum_{i<=r} (u_i - S_0 w_i) k_i^T, every r", by_rows, direct);
  }
  // Why: S_0 P^r + H^r = S_0 - sum S_0 w_i k_i^T + sum u_i k_i^T.
}

template void householder(Derivation<Rational>&);
template void householder(Derivation<Generic>&);

}  // namespace delta
