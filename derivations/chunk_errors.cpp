// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The errors of a chunk: beta on the right
//
// F83 has beta on the left of the interactions, and its solution Z is what the tokens write. With
// beta on the right the solution is E, what they are wrong by before they write:
//
//     E = (I + G B)^{-1} (V - D_g X S^T),    Z = B E,    G = sl(H . X K^T).
//
// V is used as it is, and the inverse has ones on its diagonal whatever beta is.

template <Ring T> void chunk_errors(Derivation<T>& d) {
  const Index C = d.size("C", 4, 32), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(C, d_k), K = d.matrix(C, d_k);  // [C x d_k]
  const Mat<T> V = d.matrix(C, d_v);                        // [C x d_v]
  Vec<T> beta = d.fractions(C);                             // [C]
  beta[1] = T(0);  // a token that writes nothing: B has no inverse
  const Vec<T> alpha = d.fractions(C), lambda = d.fractions(C);  // [C]
  const Mat<T> X = K + lambda.asDiagonal() * Q;                  // [C x d_k]
  const Mat<T> S0 = d.matrix(d_v, d_k);                          // [d_v x d_k]
  d.show("Q", Q, "K", K, "X", X, "V", V, "S_0", S0, "beta", beta, "alpha", alpha);

  // ## 1. By tokens

  Mat<T> S = S0, O_tokens(C, d_v);
  Mat<T> errors(C, d_v);  // [C x d_v]  row t is e~_t = v_t - alpha_t S_{t-1} x_t
  for (Index t = 0; t < C; ++t) {
    const Vec<T> k = K.row(t).transpose(), x = X.row(t).transpose(), v = V.row(t).transpose();
    S *= alpha[t];
    const Vec<T> e = v - S * x;  // [d_v]
    S += beta[t] * e * k.transpose();
    errors.row(t) = e;
    O_tokens.row(t) = S * Vec<T>(Q.row(t).transpose());
  }
  d.show("E", errors, "O", O_tokens, "S_C", S);

  // ## 2. Through the inverse

  Vec<T> gamma = alpha;               // [C]
  Mat<T> H = Mat<T>::Identity(C, C);  // [C x C]
  for (Index i = 1; i < C; ++i) {
    gamma[i] *= gamma[i - 1];
    H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  }
  const Mat<T> I = Mat<T>::Identity(C, C), B = beta.asDiagonal();         // [C x C]
  const Mat<T> G = strictly_lower<T>(H.cwiseProduct(X * K.transpose()));  // [C x C]
  const Mat<T> A = solve_unit_lower<T>(Mat<T>(G * B), I);                 // [C x C]
  const Mat<T> A_left = solve_unit_lower<T>(Mat<T>(B * G), I);            // [C x C]
  d.show("G", G, "(I + G B)^{-1}", A, "(I + B G)^{-1}", A_left);

  d.equal("F38", "(I + B G)^{-1} B = B (I + G B)^{-1}", Mat<T>(A_left * B), Mat<T>(B * A));
  // Why: B (I + G B) = (I + B G) B, both sides being B + B G B. Nothing is divided by beta.

  // ## 3. The errors

  const Mat<T> W = A * Mat<T>(gamma.asDiagonal() * X);  // [C x d_k]
  const Mat<T> E = A * V - W * S0.transpose();          // [C x d_v]
  d.show("W = A D_g X", W);
  d.equal("F84", "A V - W S^T is what the tokens are wrong by", E, errors);
  // Why: row r of (I + G B) E = V - D_g X S^T reads
  //
  //     e_r = v_r - gamma_r S x_r - sum_{i<r} (gamma_r / gamma_i) beta_i e_i (k_i . x_r),
  //
  // and the state that token r reads from is, decayed, gamma_r S + sum_{i<r} (gamma_r / gamma_i)
  // beta_i e_i k_i^T.

  const Mat<T> Z = solve_unit_lower<T>(Mat<T>(B * G), Mat<T>(B * V)) -
                   A_left * Mat<T>(B * Mat<T>(gamma.asDiagonal() * X)) * S0.transpose();
  d.equal("F84", "Z = B E", Mat<T>(B * E), Z);

  // ## 4. State and outputs
  //
  // Beta is left in two places, each a factor of something that is there anyway: of the columns
  // of the scores, and of the decays to the chunk's end.

  const Mat<T> scores = H.cwiseProduct(Q * K.transpose()) * B;                // [C x C]
  const Mat<T> from_start = gamma.asDiagonal() * Mat<T>(Q * S0.transpose());  // [C x d_v]
  const Mat<T> D_w = B * Vec<T>(H.row(C - 1).transpose()).asDiagonal();       // [C x C]
  d.equal("F84", "O = D_g Q S^T + (H . Q K^T) B E", Mat<T>(from_start + scores * E), O_tokens);
  d.equal("F84", "S' = gamma_C S + (D_w E)^T K, D_w = B diag(gamma_C / gamma)",
          Mat<T>(gamma[C - 1] * S0 + Mat<T>(D_w * E).transpose() * K), S);
  d.differs("F84", "without beta in D_w the errors are written whole",
            Mat<T>(gamma[C - 1] * S0 +
                   Mat<T>(H.row(C - 1).transpose().asDiagonal() * E).transpose() * K),
            S);

  // ## 5. The inverse from its diagonal outwards
  //
  // With L = G B in quarters, A_21 = -A_22 L_21 A_11: two inverses of half the size and two
  // products. Repeated on the halves, that is how tensor cores come to a triangular solve.

  const Index h = C / 2, r = C - h;
  const Mat<T> L = G * B;
  d.equal("F38", "A_21 = -A_22 L_21 A_11", Mat<T>(A.bottomLeftCorner(r, h)),
          Mat<T>(-(Mat<T>(A.bottomRightCorner(r, r)) * Mat<T>(L.bottomLeftCorner(r, h)) *
                   Mat<T>(A.topLeftCorner(h, h)))));
}

template void chunk_errors(Derivation<Rational>&);
template void chunk_errors(Derivation<Generic>&);

}  // namespace delta
