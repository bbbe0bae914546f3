// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The chunk form of Q-Delta, with S^T and with H
//
//     Z = U~ - D_g W S^T,    S' = gamma_C S + Z^T K->,    O = D_g Q S^T + (H . Q K^T) Z.
//
// K-> is K, each row decayed on to the chunk's end (K_out). Printed versions have S for S^T, and the mask M for H. Each
// is run here beside the right one.

template <Ring T> void q_delta_chunk(Derivation<T>& d) {
  const Index L = d.size("L", 5, 40), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> beta = d.fractions(L), alpha = d.fractions(L), lambda = d.fractions(L);  // [L]
  const Mat<T> X = K + lambda.asDiagonal() * Q;  // [L x d_k]
  const Mat<T> S0 = d.matrix(d_v, d_k);          // [d_v x d_k]
  d.show("Q", Q, "K", K, "X", X, "V", V, "S_0", S0, "beta", beta, "alpha", alpha);

  // ## 1. By tokens

  Mat<T> S_tokens = S0, O_tokens(L, d_v);
  for (Index t = 0; t < L; ++t) {
    const Vec<T> k = K.row(t).transpose(), x = X.row(t).transpose(), v = V.row(t).transpose();
    S_tokens *= alpha[t];
    S_tokens += beta[t] * (v - S_tokens * x) * k.transpose();
    O_tokens.row(t) = S_tokens * Vec<T>(Q.row(t).transpose());
  }
  d.show("O", O_tokens, "S_L", S_tokens);

  // ## 2. By chunks of every length

  for (Index C : {Index(1), Index(2), Index(3), L / 2, L}) {
    Mat<T> S = S0;
    for (Index begin = 0; begin < L; begin += C) {
      const Index c = std::min(C, L - begin);
      const Mat<T> q = Q.middleRows(begin, c), k = K.middleRows(begin, c),
                   x = X.middleRows(begin, c);
      const Mat<T> v = V.middleRows(begin, c);                       // [c x d_v]
      const Vec<T> a = alpha.segment(begin, c);                      // [c]
      const Mat<T> B = Vec<T>(beta.segment(begin, c)).asDiagonal();  // [c x c]
      Vec<T> gamma = a;                                              // [c]
      Mat<T> H = Mat<T>::Identity(c, c);                             // [c x c]
      for (Index i = 1; i < c; ++i) {
        gamma[i] *= gamma[i - 1];
        H.row(i).head(i) = a[i] * H.row(i - 1).head(i);
      }
      const Mat<T> XK = x * k.transpose(), QK = q * k.transpose();         // [c x c]
      const Mat<T> L_ = strictly_lower<T>(B * XK);                         // [c x c]  L
      const Mat<T> L_g = strictly_lower<T>(B * H.cwiseProduct(XK));        // [c x c]
      const Mat<T> W = solve_unit_lower<T>(L_, B * x);                     // [c x d_k]
      const Mat<T> U = solve_unit_lower<T>(L_g, B * v);                    // [c x d_v]
      const Mat<T> Z = U - gamma.asDiagonal() * (W * S.transpose());       // [c x d_v]
      const Mat<T> K_out = H.row(c - 1).asDiagonal() * k;                  // [c x d_k]
      const Mat<T> from_start = gamma.asDiagonal() * (q * S.transpose());  // [c x d_v]
      const Mat<T> O = from_start + H.cwiseProduct(QK) * Z;                // [c x d_v]
      if (C == L) d.show("H", H, "L", L_, "L_g", L_g, "W", W, "U~", U, "Z", Z);
      d.equal("F84", "O = D_g Q S^T + (H . Q K^T) Z, every C", O, O_tokens.middleRows(begin, c));

      if (C == L) {  // the slips, on one chunk
        const Mat<T> strict = strictly_lower<T>(H.cwiseProduct(QK));
        d.differs("F84", "a strict mask is the state before the write", from_start + strict * Z,
                  O);
        d.differs("F87", "the mask M for H: the output is wrong", from_start + lower<T>(QK) * Z,
                  O);
        d.equal("F87", "while the state, which has no mask, is right",
                gamma[c - 1] * S + Z.transpose() * K_out, S_tokens);
        d.shape("F86", "W S does not conform: W has d_k columns, S has d_v rows",
                (W.cols() == S.rows()) == (d_k == d_v));
      }
      S = gamma[c - 1] * S + Z.transpose() * K_out;  // [d_v x d_k]
    }
    d.equal("F84", "S' = gamma_C S + Z^T K->, every C", S, S_tokens);
  }
  // Why: row r of (I + L_g) Z = B (V - D_g X S^T) reads
  //
  //     z_r = beta_r (v_r - gamma_r S x_r - sum_{i<r} (gamma_r / gamma_i) z_i (k_i . x_r)),
  //
  // and the state that token r reads from, decayed, is gamma_r S + sum_{i<r} (gamma_r / gamma_i)
  // z_i k_i^T. So z_r = beta_r (v_r - alpha_r S_{r-1} x_r), what the rule writes along k_r.

  // ## 3. S for S^T when nothing refuses it
  //
  // With d_k = d_v the shapes conform. Two tokens and 2 x 2 matrices are enough to see the
  // numbers part.

  const Mat<T> s = d.matrix(2, 2), w = d.matrix(2, 2);
  d.show("W S^T", w * s.transpose(), "W S", w * s);
  d.differs("F86", "square: W S is not W S^T", w * s, w * s.transpose());

  // ## 4. One letter, two matrices
  //
  // The ratios gamma_i / gamma_j appear with their diagonal (the output reads after the write)
  // and without it (the interactions are strictly lower). One letter for both cannot be right in
  // both places:

  Mat<T> H = Mat<T>::Identity(L, L);
  for (Index i = 1; i < L; ++i) H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  d.differs("F88", "the ratios with the diagonal are not those without: H names the first",
            strictly_lower<T>(H), H);
  d.equal("F88", "H - sl(H) = I", H - strictly_lower<T>(H), Mat<T>::Identity(L, L));
}

template void q_delta_chunk(Derivation<Rational>&);
template void q_delta_chunk(Derivation<Generic>&);

}  // namespace delta
