// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # One solve for every rule, with decays of zero allowed
//
// The derivation of W and U~ takes the decay out of the product as a number. With one decay per
// key channel that is no longer possible, and with a decay of zero the ratio gamma_i / gamma_j
// does not exist. Neither matters if one never divides and solves for the corrections directly.
//
// One step of any rule: decay by D = diag(d), predict with x from the decayed state, write along
// y. Read from the state before its decay, the prediction is S p with p = beta D x:
//
//     z = beta v - S p,    S <- S D + z y^T.

template <Field T> void one_solve(Derivation<T>& d) {
  const Index C = d.size("C", 4, 40), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(C, d_k), X = d.matrix(C, d_k), Y = d.matrix(C, d_k);  // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);                                              // [C x d_v]
  const Vec<T> beta = d.fractions(C);                                             // [C]
  const Mat<T> S0 = d.matrix(d_v, d_k);                                           // [d_v x d_k]
  Mat<T> D(C, d_k);  // [C x d_k]  row i: the decay of each key channel at token i
  for (Index i = 0; i < C; ++i) D.row(i) = d.fractions(d_k).transpose();
  D(1, 0) = T(0);          // one channel is cleared at token 1,
  D.row(C - 1).setZero();  // and the whole state at the last
  d.show("X", X, "Y", Y, "D", D, "beta", beta);

  // ## 1. By tokens, as the rule is written

  Mat<T> S = S0, O(C, d_v), Z_tokens(C, d_v);
  for (Index i = 0; i < C; ++i) {
    const Vec<T> x = X.row(i).transpose(), v = V.row(i).transpose();
    S = S * D.row(i).asDiagonal();
    const Vec<T> z = beta[i] * (v - S * x);
    S += z * Y.row(i);
    O.row(i) = S * Vec<T>(Q.row(i).transpose());
    Z_tokens.row(i) = z.transpose();
  }

  // ## 2. The write keys, carried along
  //
  // Let Phi_{j..i} be the decay of tokens j+1 .. i. Row j of `carried` is Phi_{j..i} y_j: what
  // has become of the write key of token j by token i. It is multiplied by each decay once, as
  // the state is.

  Mat<T> carried = Mat<T>::Zero(C, d_k);  // [C x d_k]
  Mat<T> Phi = Mat<T>::Ones(1, d_k);      // [1 x d_k]   Phi_{0..i}
  Mat<T> L = Mat<T>::Zero(C, C), A = L;   // [C x C]
  Mat<T> P_bar(C, d_k), Q_in(C, d_k);     // [C x d_k]
  for (Index i = 0; i < C; ++i) {
    const Vec<T> p = beta[i] * D.row(i).transpose().cwiseProduct(X.row(i).transpose());  // [d_k]
    for (Index j = 0; j < i; ++j) L(i, j) = carried.row(j).dot(p);  // (Phi_{j..i-1} y_j) . p_i
    P_bar.row(i) = Phi.cwiseProduct(p.transpose());                 // Phi_{0..i-1} p_i
    for (Index j = 0; j < i; ++j) carried.row(j) = carried.row(j).cwiseProduct(D.row(i));
    carried.row(i) = Y.row(i);
    Phi = Phi.cwiseProduct(D.row(i));
    for (Index j = 0; j <= i; ++j) A(i, j) = carried.row(j).dot(Q.row(i));
    Q_in.row(i) = Phi.cwiseProduct(Q.row(i));
  }
  d.show("L", L, "P bar", P_bar, "Y at the end", carried);

  // ## 3. One triangular solve

  const Mat<T> U = beta.asDiagonal() * V;                               // [C x d_v]
  const Mat<T> Z = solve_unit_lower<T>(L, U - P_bar * S0.transpose());  // [C x d_v]
  d.show("Z", Z);
  d.equal("C-one-solve", "(I + L) Z = U - P bar S^T gives z_i = beta_i (v_i - S_{i-1} D_i x_i)",
          Z, Z_tokens);
  d.equal("C-one-solve", "O = Q_in S^T + A Z, decays of zero included",
          Q_in * S0.transpose() + A * Z, O);
  d.equal("C-one-solve", "S' = S Phi + Z^T Y_out, decays of zero included",
          S0 * Phi.row(0).asDiagonal() + Z.transpose() * carried, S);
  // Why: S_{i-1} = S Phi_{0..i-1} + sum_{j<i} z_j (Phi_{j..i-1} y_j)^T. Apply it to p_i.

  // ## 4. With one number per token it is the two-solve form
  //
  // D = alpha I: P bar = B D_g X and L = sl(B (H . X Y^T)) = L_g. The two-solve form has U~ - D_g
  // W S^T on the right, and D_g W = (I + L_g)^{-1} B D_g X joins them. H is built from running
  // products.

  Vec<T> alpha = d.fractions(C);
  alpha[C / 2] = T(0);
  Vec<T> gamma = alpha;
  Mat<T> H = Mat<T>::Identity(C, C);
  for (Index i = 1; i < C; ++i) {
    gamma[i] *= gamma[i - 1];
    H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  }
  const Mat<T> B = beta.asDiagonal(), D_g = gamma.asDiagonal();
  const Mat<T> XY = X * Y.transpose();                                     // [C x C]
  const Mat<T> L_g = strictly_lower<T>(B * H.cwiseProduct(XY));            // [C x C]
  const Mat<T> W = solve_unit_lower<T>(strictly_lower<T>(B * XY), B * X);  // [C x d_k]
  d.show("alpha", alpha, "gamma", gamma, "H", H);
  d.equal("D6", "one solve equals two, with alpha = 0 inside the chunk",
          solve_unit_lower<T>(L_g, B * Mat<T>(V - D_g * (X * S0.transpose()))),
          solve_unit_lower<T>(L_g, B * V) - D_g * (W * S0.transpose()));

  // ## 5. A mask from resets
  //
  // Where the decays are given as logarithms, ln 0 = -infinity and a difference of two infinities
  // is no number. Count resets instead: H is nonzero only between rows with the same count, and
  // there the ratio of the products since the last reset is finite.

  Vec<T> since = alpha;  // product since the last reset, never zero
  std::vector<int> resets(C);
  for (Index i = 0; i < C; ++i) {
    const bool reset = alpha[i] == T(0);
    resets[i] = (i ? resets[i - 1] : 0) + reset;
    since[i] = (reset ? T(1) : alpha[i]) * (i ? since[i - 1] : T(1));
  }
  Mat<T> masked = Mat<T>::Zero(C, C);
  for (Index i = 0; i < C; ++i)
    for (Index j = 0; j <= i; ++j)
      if (resets[i] == resets[j]) masked(i, j) = since[i] / since[j];
  d.equal("D6", "H_ij = [resets_i = resets_j] times a finite ratio", masked, H);
}

template void one_solve(Derivation<Rational>&);
template void one_solve(Derivation<Generic>&);

}  // namespace delta
