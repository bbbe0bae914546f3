// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Q-Delta's WY form: X K^T, row i read, column j written
//
// The transitions are now P_i = I - beta_i x_i k_i^T, reading with x and writing along k. The
// argument of WY goes through word by word with one change: the overlap of an earlier write with
// a later read is k_i . x_r. Stacked in rows that is entry (r, i) of X K^T, not of K X^T.

template <Ring T> void q_delta_wy(Derivation<T>& d) {
  const Index C = d.size("C", 4, 48), d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> Q = d.matrix(C, d_k), K = d.matrix(C, d_k);  // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);                        // [C x d_v]
  const Vec<T> beta = d.fractions(C), alpha = d.fractions(C), lambda = d.fractions(C);  // [C]
  const Mat<T> X = K + lambda.asDiagonal() * Q;  // [C x d_k]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  d.show("K", K, "X", X, "V", V, "beta", beta, "alpha", alpha);

  Vec<T> gamma = alpha;               // [C]
  Mat<T> H = Mat<T>::Identity(C, C);  // [C x C]
  for (Index i = 1; i < C; ++i) {
    gamma[i] *= gamma[i - 1];
    H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  }

  // ## 1. By recurrences
  //
  //     P_1 ... P_r = I - sum_{i<=r} w_i k_i^T,
  //     w_r = beta_r (x_r - sum_{i<r} w_i (k_i . x_r)),
  //
  //     G^r = sum_{i<=r} (gamma_r / gamma_i) u~_i k_i^T,
  //     u~_r = beta_r (v_r - sum_{i<r} (gamma_r / gamma_i) u~_i (k_i . x_r)).

  Mat<T> W(C, d_k), U(C, d_v);
  Mat<T> P = I, G = Mat<T>::Zero(d_v, d_k);
  for (Index r = 0; r < C; ++r) {
    W.row(r) = X.row(r), U.row(r) = V.row(r);
    for (Index i = 0; i < r; ++i) {
      const T overlap = K.row(i).dot(X.row(r));  // k_i . x_r: the write of i as r reads it
      W.row(r) -= overlap * W.row(i);
      U.row(r) -= H(r, i) * overlap * U.row(i);
    }
    W.row(r) *= beta[r], U.row(r) *= beta[r];

    const Mat<T> P_r = I - beta[r] * X.row(r).transpose() * K.row(r);  // [d_k x d_k]
    P = P * P_r;
    G = alpha[r] * (G * P_r) + beta[r] * V.row(r).transpose() * K.row(r);
    if (r < 4) {
      const Mat<T> w = W.topRows(r + 1), k = K.topRows(r + 1);
      d.equal("F82", "P_1 ... P_r = I - sum w_i k_i^T, every r", I - w.transpose() * k, P);
      Mat<T> sum = Mat<T>::Zero(d_v, d_k);
      for (Index i = 0; i <= r; ++i) sum += H(r, i) * U.row(i).transpose() * K.row(i);
      d.equal("F82", "G^r = sum (gamma_r / gamma_i) u~_i k_i^T, every r", sum, G);
    }
  }
  d.show("W", W, "U~", U, "P_1 ... P_C", P);
  // Why: P_1 ... P_r = P_1 ... P_{r-1} - (beta_r P_1 ... P_{r-1} x_r) k_r^T. The bracket is w_r,
  // and P_1 ... P_{r-1} x_r = x_r - sum_{i<r} w_i (k_i . x_r).

  // ## 2. As triangular systems

  const Mat<T> B = beta.asDiagonal();                            // [C x C]
  const Mat<T> XK = X * K.transpose();                           // [C x C]  (r, i): x_r . k_i
  const Mat<T> L = strictly_lower<T>(B * XK);                    // [C x C]
  const Mat<T> L_g = strictly_lower<T>(B * H.cwiseProduct(XK));  // [C x C]
  d.show("X K^T", XK, "K X^T", XK.transpose(), "L", L, "L_g", L_g);
  d.equal("F83", "W = (I + L)^{-1} B X, L = sl(B X K^T)", solve_unit_lower<T>(L, B * X), W);
  d.equal("F83", "U~ = (I + L_g)^{-1} B V, L_g = sl(B (H . X K^T))",
          solve_unit_lower<T>(L_g, B * V), U);
  const Mat<T> D_g = gamma.asDiagonal();
  d.equal("F83", "D_g W = (I + L_g)^{-1} B D_g X", solve_unit_lower<T>(L_g, B * (D_g * X)),
          D_g * W);

  // ## 3. Printed the other way round
  //
  // K X^T is the transpose: it couples the read of the earlier token with the write of the later
  // one. When lambda = 0 it is the same symmetric matrix, and the slip cannot be seen.

  const Mat<T> KX = K * X.transpose();  // [C x C]
  const Mat<T> L_t = strictly_lower<T>(B * KX);
  const Mat<T> W_t = solve_unit_lower<T>(L_t, B * X);
  d.differs("F85", "with K X^T, W is wrong", W_t, W);
  d.differs("F85", "with K X^T, U~ is wrong",
            solve_unit_lower<T>(strictly_lower<T>(B * H.cwiseProduct(KX)), B * V), U);
  d.equal("F85", "for lambda = 0 the two are one", K * K.transpose(),
          (K * K.transpose()).transpose());

  // K X^T is the right matrix for another rule, the one that reads with k and writes along x:

  Mat<T> mirrored = I;
  for (Index r = 0; r < C; ++r)
    mirrored = mirrored * Mat<T>(I - beta[r] * K.row(r).transpose() * X.row(r));
  const Mat<T> W_m = solve_unit_lower<T>(L_t, B * K);  // [C x d_k]
  d.equal("F85", "K X^T solves the rule that reads k and writes x", I - W_m.transpose() * X,
          mirrored);
}

template void q_delta_wy(Derivation<Rational>&);
template void q_delta_wy(Derivation<Generic>&);

}  // namespace delta
