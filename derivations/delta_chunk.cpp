// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The chunk output of the delta rule
//
// With W and U of the UT transform, every state inside the chunk is the state at its start plus r
// outer products. So all outputs of the chunk are two products of matrices, and the next chunk's
// state is a third.

template <Ring T> void delta_chunk(Derivation<T>& d) {
  const Index C = d.size("C", 4, 48), d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> Q = d.matrix(C, d_k), K = d.matrix(C, d_k);  // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);                        // [C x d_v]
  const Vec<T> beta = d.fractions(C);                       // [C]
  const Mat<T> S0 = d.matrix(d_v, d_k);  // [d_v x d_k]  the state at the chunk's start
  d.show("Q", Q, "K", K, "V", V, "S_0", S0, "beta", beta);

  // ## 1. By tokens

  Mat<T> S = S0;     // [d_v x d_k]
  Mat<T> O(C, d_v);  // [C x d_v]   row t is o_t = S_t q_t
  Mat<T> E(C, d_v);  // [C x d_v]   row t is beta_t (v_t - S_{t-1} k_t), what token t really wrote
  for (Index t = 0; t < C; ++t) {
    const Vec<T> k = K.row(t).transpose(), v = V.row(t).transpose(), q = Q.row(t).transpose();
    const Vec<T> written = beta[t] * (v - S * k);  // [d_v]
    S += written * k.transpose();
    O.row(t) = S * q;
    E.row(t) = written;
  }
  d.show("O", O, "S_C", S);

  // ## 2. By two triangular solves

  const Mat<T> B = beta.asDiagonal();                           // [C x C]
  const Mat<T> L = strictly_lower<T>(B * (K * K.transpose()));  // [C x C]
  const Mat<T> W = solve_unit_lower<T>(L, B * K);               // [C x d_k]   (I + L) W = B K
  const Mat<T> U = solve_unit_lower<T>(L, B * V);               // [C x d_v]   (I + L) U = B V
  const Mat<T> Z = U - W * S0.transpose();                      // [C x d_v]
  d.show("W", W, "U", U, "Z = U - W S_0^T", Z);

  d.equal("F36", "row r of U - W S_0^T is u_r - S_0 w_r = beta_r (v_r - S_{r-1} k_r)", Z, E);
  // Why: (I + L) Z = B V - B K S_0^T. Row r reads z_r = beta_r (v_r - S_0 k_r - sum_{i<r} z_i
  // (k_i . k_r)), and S_{r-1} = S_0 + sum_{i<r} z_i k_i^T.

  // ## 3. State and outputs

  d.equal("F39", "S' = S + (U - W S^T)^T K", S0 + Z.transpose() * K, S);

  const Mat<T> scores = lower<T>(Q * K.transpose());  // [C x C]  Q K^T . M
  d.show("Q K^T . M", scores);
  d.equal("F39", "O = Q S^T + (Q K^T . M)(U - W S^T)", Q * S0.transpose() + scores * Z, O);
  // Why: o_r = S_0 q_r + sum_{i<=r} z_i (k_i . q_r). The sum includes i = r, the token reads
  // after it has written; a strict mask would read the state before the write.

  const Mat<T> strict = strictly_lower<T>(Q * K.transpose());
  d.differs("F39", "without the diagonal the outputs are those before each write",
            Q * S0.transpose() + strict * Z, O);

  // ## 4. S or S^T
  //
  // Q [C x d_k] times S [d_v x d_k] is no product: with d_k and d_v different the shapes refuse
  // it. When they are equal nothing refuses, and the numbers are wrong.

  d.shape("F39", "Q S does not conform unless d_k = d_v",
          (Q.cols() == S0.rows()) == (d_k == d_v));

  const Index n = std::min(C, d_k);  // a square state, n x n
  const Mat<T> q = Q.topLeftCorner(n, n), k = K.topLeftCorner(n, n), v = d.matrix(n, n),
               s = d.matrix(n, n);
  const Mat<T> b = beta.head(n).asDiagonal();
  const Mat<T> l = strictly_lower<T>(b * (k * k.transpose()));
  const Mat<T> w = solve_unit_lower<T>(l, b * k), u = solve_unit_lower<T>(l, b * v);
  const Mat<T> qk = lower<T>(q * k.transpose());
  const Mat<T> right = q * s.transpose() + qk * Mat<T>(u - w * s.transpose());
  const Mat<T> printed = q * s + qk * Mat<T>(u - w * s);
  d.show("with S^T", right, "with S", printed);
  d.differs("F39", "Q S + (Q K^T . M)(U - W S) is wrong for a square state", printed, right);
}

template void delta_chunk(Derivation<Rational>&);
template void delta_chunk(Derivation<Generic>&);

}  // namespace delta
