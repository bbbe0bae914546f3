// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # WY with decay: F, G, and why W stays undecayed
//
// With decay the state after r steps of a chunk is S^r = S_0 F^r + G^r. F is a product of
// transitions, and a number commutes with a matrix, so all its decays can be collected in front:
// F^r = gamma_r P^r. P, and with it W, does not know of the decay. G is a sum of writes of
// different ages, so its coefficients U~ do.

template <Field T> void gated_wy(Derivation<T>& d) {
  const Index C = d.size("C", 4, 48), d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> Q = d.matrix(C, d_k), K = d.matrix(C, d_k);     // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);                           // [C x d_v]
  const Vec<T> beta = d.fractions(C), alpha = d.fractions(C);  // [C]
  const Mat<T> S0 = d.matrix(d_v, d_k);                        // [d_v x d_k]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  d.show("K", K, "V", V, "beta", beta, "alpha", alpha);

  // ## 1. The decays between rows

  Vec<T> gamma = alpha;               // [C]      gamma_i = alpha_1 ... alpha_i
  Mat<T> H = Mat<T>::Identity(C, C);  // [C x C]  H_ij = alpha_{j+1} ... alpha_i
  for (Index i = 1; i < C; ++i) {
    gamma[i] *= gamma[i - 1];
    H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  }
  d.show("gamma", gamma, "H", H);

  // ## 2. F and G by their recurrences

  Mat<T> P = I, F = I, G = Mat<T>::Zero(d_v, d_k);
  Mat<T> Ut(C, d_v);  // [C x d_v]  U~, row by row from its recurrence
  for (Index r = 0; r < C; ++r) {
    const Mat<T> A = I - beta[r] * K.row(r).transpose() * K.row(r);  // [d_k x d_k]
    const Mat<T> B = beta[r] * V.row(r).transpose() * K.row(r);      // [d_v x d_k]
    P = P * A;
    F = alpha[r] * (F * A);
    G = alpha[r] * (G * A) + B;

    Ut.row(r) = V.row(r);
    for (Index i = 0; i < r; ++i) Ut.row(r) -= (H(r, i) * K.row(i).dot(K.row(r))) * Ut.row(i);
    Ut.row(r) *= beta[r];
    if (r < 4) {
      d.equal("F52", "F^r = gamma_r P^r, every r", F, gamma[r] * P);
      Mat<T> sum = Mat<T>::Zero(d_v, d_k);
      for (Index i = 0; i <= r; ++i) sum += H(r, i) * Ut.row(i).transpose() * K.row(i);
      d.equal("F52", "G^r = sum_i (gamma_r / gamma_i) u~_i k_i^T, every r", sum, G);
    }
  }
  // Why: alpha_r G^{r-1} A_r + B_r = alpha_r G^{r-1} + beta_r (v_r - alpha_r G^{r-1} k_r) k_r^T.
  // The first term ages every earlier write by alpha_r, and the bracket is the recurrence of
  // u~_r.

  // ## 3. As triangular systems
  //
  // The factor beta_r H_ri (k_i . k_r) is an entry of L_g = sl(B (H . K K^T)). W keeps the plain
  // Gram matrix, L = sl(B K K^T).

  const Mat<T> B = beta.asDiagonal();                            // [C x C]
  const Mat<T> KK = K * K.transpose();                           // [C x C]
  const Mat<T> L = strictly_lower<T>(B * KK);                    // [C x C]
  const Mat<T> L_g = strictly_lower<T>(B * H.cwiseProduct(KK));  // [C x C]
  const Mat<T> W = solve_unit_lower<T>(L, B * K);                // [C x d_k]
  const Mat<T> U = solve_unit_lower<T>(L_g, B * V);              // [C x d_v]
  d.show("W", W, "U~", U);

  d.equal("F53", "(I + L_g) U~ = B V", U, Ut);
  d.equal("F53", "P = I - W^T K with the plain Gram matrix", I - W.transpose() * K, P);
  d.differs("F53", "U~ is not T V with the plain Gram matrix", solve_unit_lower<T>(L, B * V), Ut);

  // ## 4. The identity that joins them: D_g W = (I + L_g)^{-1} B D_g K
  //
  // L_g is L between decays: L_g = D_g L D_g^{-1}, because H_ri = gamma_r / gamma_i. So
  // I + L_g = D_g (I + L) D_g^{-1}, and (I + L_g) D_g W = D_g (I + L) W = D_g B K = B D_g K. The
  // last line needs no division, and stays true where a decay is zero.

  const Mat<T> D_g = gamma.asDiagonal();  // [C x C]
  const Mat<T> W_in = D_g * W;            // [C x d_k]  W<-
  d.equal("F53", "L_g D_g = D_g L", L_g * D_g, D_g * L);
  d.equal("F53", "(I + L_g) D_g W = B D_g K", W_in + L_g * W_in, B * (D_g * K));
  d.equal("F53", "hence one solve: Z = (I + L_g)^{-1} B (V - D_g K S_0^T) = U~ - D_g W S_0^T",
          solve_unit_lower<T>(L_g, B * Mat<T>(V - D_g * (K * S0.transpose()))),
          U - W_in * S0.transpose());

  Vec<T> to_end = H.row(C - 1).transpose();      // [C]  gamma_C / gamma_i
  const Mat<T> K_out = to_end.asDiagonal() * K;  // [C x d_k]  K->
  Vec<T> back(C);
  for (Index i = 0; i < C; ++i) back[i] = gamma[i] / gamma[C - 1];
  d.equal("F54", "K = diag(gamma_i / gamma_C) K->", back.asDiagonal() * K_out, K);
  Mat<T> P_rows = I;  // I - sum_i w_i<- (k_i / gamma_i)^T: the decays of W<- cancel
  for (Index i = 0; i < C; ++i) P_rows -= W_in.row(i).transpose() * K.row(i) / gamma[i];
  d.equal("F54", "W<- = D_g W: row i of W, moved to the chunk's start", P_rows, P);

  // ## 5. The chunk

  const Mat<T> Z = U - W_in * S0.transpose();  // [C x d_v]
  Mat<T> S = S0, O(C, d_v);
  for (Index r = 0; r < C; ++r) {
    const Vec<T> k = K.row(r).transpose(), v = V.row(r).transpose(), q = Q.row(r).transpose();
    S *= alpha[r];
    S += beta[r] * (v - S * k) * k.transpose();
    O.row(r) = S * q;
    if (r < 4) {
      Mat<T> state = gamma[r] * S0;
      for (Index i = 0; i <= r; ++i) state += H(r, i) * Z.row(i).transpose() * K.row(i);
      d.equal("F55", "S^r = gamma_r S_0 + sum_{i<=r} (gamma_r / gamma_i) z_i k_i^T, every r",
              state, S);
      d.equal("F55", "o^r = S^r q_r, every r", state * q, O.row(r).transpose());
    }
  }
  const Mat<T> S_next = gamma[C - 1] * S0 + Z.transpose() * K_out;  // [d_v x d_k]
  d.equal("F55", "S' = S-> + Z^T K->", S_next, S);

  const Mat<T> QK = Q * K.transpose();                   // [C x C]
  const Mat<T> from_start = D_g * (Q * S0.transpose());  // [C x d_v]  Q<- S^T
  d.show("Z", Z, "O", O);
  d.equal("F56", "O = Q<- S^T + (Q K^T . H) Z", from_start + H.cwiseProduct(QK) * Z, O);

  // ## 6. Three ways to lose a decay
  //
  // The state does not use the output mask, so a wrong mask leaves S right and O wrong; the other
  // two slips spoil both.

  d.differs("F56", "with the mask M for H the output is wrong", from_start + lower<T>(QK) * Z, O);
  const auto state_with = [&](const Mat<T>& z) {
    return Mat<T>(gamma[C - 1] * S0 + z.transpose() * K_out);
  };
  d.differs("F53", "with W undecayed, Z = U~ - W S^T, the state is wrong",
            state_with(U - W * S0.transpose()), S);
  d.differs("F53", "with the plain Gram matrix in U~ the state is wrong",
            state_with(solve_unit_lower<T>(L, B * V) - W_in * S0.transpose()), S);
}

template void gated_wy(Derivation<Rational>&);
template void gated_wy(Derivation<Generic>&);

}  // namespace delta
