// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The UT transform: C steps in a row become one triangular solve
//
// A chunk of C tokens of the delta rule multiplies the state by P = A_1 A_2 ... A_C with A_i = I
// - beta_i k_i k_i^T, and adds H, what the values of the chunk have written. Both are sums of
// outer products with the keys, P = I - W^T K and H = U^T K, and their coefficients come from a
// recurrence in which every row needs all the rows above it:
//
//     w_r = beta_r (k_r - sum_{i<r} w_i (k_i . k_r)),
//     u_r = beta_r (v_r - sum_{i<r} u_i (k_i . k_r)).
//
// Read serially, that is C steps. Read as equations, it is one linear system.

template <Ring T> void ut_transform(Derivation<T>& d) {
  const Index C = d.size("C", 4, 64), d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  // ## 1. The recurrence, as it stands
  //
  // Row r of K is the key k_r, row r of V the value v_r. Row r of W and of U are what we want.

  const Mat<T> K = d.matrix(C, d_k);   // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);   // [C x d_v]
  const Vec<T> beta = d.fractions(C);  // [C]
  d.show("K", K, "V", V, "beta", beta);

  Mat<T> W(C, d_k), U(C, d_v);
  for (Index r = 0; r < C; ++r) {
    W.row(r) = K.row(r), U.row(r) = V.row(r);
    for (Index i = 0; i < r; ++i) {
      const T overlap = K.row(i).dot(K.row(r));  // k_i . k_r
      W.row(r) -= overlap * W.row(i);
      U.row(r) -= overlap * U.row(i);
    }
    W.row(r) *= beta[r], U.row(r) *= beta[r];
  }
  d.show("W", W, "U", U);

  // ## 2. The same numbers as a matrix
  //
  // The factor beta_r (k_i . k_r) with i < r is the entry (r, i) of
  //
  //     L = sl(B K K^T),    B = diag(beta),    sl(.) = the part strictly below the diagonal.

  const Mat<T> B = beta.asDiagonal();                           // [C x C]
  const Mat<T> L = strictly_lower<T>(B * (K * K.transpose()));  // [C x C]
  const Mat<T> I = Mat<T>::Identity(C, C);                      // [C x C]
  d.show("L", L);

  d.equal("F37", "(I + L) W = B K", (I + L) * W, B * K);
  d.equal("F37", "(I + L) U = B V", (I + L) * U, B * V);
  // Why: row r of (I + L) W is w_r + sum_{i<r} beta_r (k_i . k_r) w_i. Move the sum to the other
  // side and it is the recurrence.

  // ## 3. The system always has a solution, and needs no division
  //
  // I + L has ones on its diagonal and nothing above: its determinant is 1 whatever the keys are.
  // Forward substitution takes row i of the right side, subtracts what the rows above contribute,
  // and is done. It multiplies and subtracts, so it works over any ring.

  const Mat<T> solved = solve_unit_lower<T>(L, B * K);  // [C x d_k]
  d.equal("F38", "forward substitution returns W", solved, W);

  T product_of_diagonal(1);
  for (Index i = 0; i < C; ++i) product_of_diagonal *= (I + L)(i, i);
  d.equal("F38", "det(I + L) = 1", product_of_diagonal, T(1));
  // Why: the determinant of a triangular matrix is the product of its diagonal.

  // ## 4. One inverse serves both
  //
  // W and U have the same matrix on the left. T = (I + L)^{-1} B is found once, and then both are
  // products of matrices, which is what the hardware is good at.

  const Mat<T> inverse = solve_unit_lower<T>(L, I);  // [C x C]  (I + L)^{-1}
  const Mat<T> TB = inverse * B;                     // [C x C]  T
  d.show("(I + L)^{-1}", inverse);

  d.equal("F38", "(I + L) (I + L)^{-1} = I", (I + L) * inverse, I);
  d.equal("F37", "W = T K", TB * K, W);
  d.equal("F37", "U = T V", TB * V, U);

  // B stands on the right of the inverse. Put on the left, it scales the wrong index:

  d.differs("F37", "W is not B (I + L)^{-1} K", B * (inverse * K), W);

  // ## 5. What it was for
  //
  // The product of the C transitions and the sum of the C writes, each from its definition:

  Mat<T> P = Mat<T>::Identity(d_k, d_k), H = Mat<T>::Zero(d_v, d_k);
  for (Index r = 0; r < C; ++r) {
    const Vec<T> k = K.row(r).transpose(), v = V.row(r).transpose();
    P -= (beta[r] * (P * k)) * k.transpose();      // P A_r
    H += (beta[r] * (v - H * k)) * k.transpose();  // H A_r + beta_r v_r k_r^T
  }
  d.equal("F34", "A_1 A_2 ... A_C = I - W^T K", Mat<T>::Identity(d_k, d_k) - W.transpose() * K,
          P);
  d.equal("F35", "sum_i beta_i v_i k_i^T A_{i+1} ... A_C = U^T K", U.transpose() * K, H);
  // Why: P A_r = P - (P beta_r k_r) k_r^T, so each step adds one column times k_r^T; the column
  // is w_r = beta_r P_{r-1} k_r, and P_{r-1} k_r = k_r - sum_{i<r} w_i (k_i . k_r) by the same
  // formula one step earlier. The argument for H is the same with v_r - H_{r-1} k_r in place of
  // P_{r-1} k_r.
}

template void ut_transform(Derivation<Rational>&);
template void ut_transform(Derivation<Generic>&);

}  // namespace delta
