// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Q-Delta at no extra cost
//
// Q-Delta reads with X = K + diag(lambda) Q. Formed as written, X is one more matrix to load and
// multiply. It need not be formed: every product that contains X is a sum of two products that
// the chunk form has to compute anyway.

template <Ring T> void no_extra_cost(Derivation<T>& d) {
  const Index C = d.size("C", 3, 48), d_k = d.size("d_k", 4, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> Q = d.matrix(C, d_k), K = d.matrix(C, d_k);  // [C x d_k]
  const Vec<T> lambda = d.fractions(C);                     // [C]
  const Mat<T> S = d.matrix(d_v, d_k);                      // [d_v x d_k]
  const Mat<T> X = K + lambda.asDiagonal() * Q;             // [C x d_k]
  d.show("Q", Q, "K", K, "lambda", lambda, "X", X);

  // ## 1. Against the state
  //
  // S K^T is the prediction with the key. S Q^T is computed for the output, Q S^T, already.

  const Mat<T> SK = S * K.transpose(), SQ = S * Q.transpose();  // [d_v x C]
  d.show("S K^T", SK, "S Q^T", SQ);
  d.equal("C-reuse-state", "S X^T = S K^T + S Q^T diag(lambda)", S * X.transpose(),
          SK + SQ * lambda.asDiagonal());

  // ## 2. Against the keys
  //
  // K K^T is the Gram matrix of the delta rule. Q K^T is the score matrix of the output, already
  // there.

  const Mat<T> KK = K * K.transpose(), QK = Q * K.transpose();  // [C x C]
  d.show("K K^T", KK, "Q K^T", QK);
  d.equal("C-reuse-scores", "X K^T = K K^T + diag(lambda) Q K^T", X * K.transpose(),
          KK + lambda.asDiagonal() * QK);
  // Why: X^T = K^T + Q^T diag(lambda), and products distribute over sums.

  // What is left is C (C + d_v) multiply-adds per chunk, against the 2 C d_k (C + d_v) of the
  // products themselves: one in 2 d_k.

  // ## 3. The projection
  //
  // lambda = sigmoid(W h + b) with one row of W per head and one bias: H d_model + 1 parameters
  // more than the gated delta rule, and no further state.

  const Index heads = 8, d_model = 1024;
  d.equal("F78", "8 heads, d_model = 1024: 8193 parameters more", T(int(heads * d_model + 1)),
          T(8193));
}

template void no_extra_cost(Derivation<Rational>&);
template void no_extra_cost(Derivation<Generic>&);

}  // namespace delta
