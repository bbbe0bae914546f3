// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The fully parallel form, and the beta that is easily lost
//
// Take the whole sequence as one chunk and start from an empty memory. Then O = A V with one
// matrix A, as in attention: entry (i, j) is the weight of value j in output i. It is worth
// seeing what the entries are, because this is where a factor beta_j gets lost.

template <Ring T> void fully_parallel(Derivation<T>& d) {
  const Index L = d.size("L", 4, 32), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> beta = d.fractions(L);                       // [L]
  d.show("Q", Q, "K", K, "V", V, "beta", beta);

  // ## 1. The recurrence, and the pseudo-values it writes
  //
  // u_t = beta_t (v_t - S_{t-1} k_t) is what is really added under the key k_t. In terms of the u
  // the delta rule is linear attention.

  Mat<T> S = Mat<T>::Zero(d_v, d_k);  // [d_v x d_k]
  Mat<T> O(L, d_v), U(L, d_v);        // [L x d_v]
  for (Index t = 0; t < L; ++t) {
    const Vec<T> k = K.row(t).transpose(), v = V.row(t).transpose();
    const Vec<T> u = beta[t] * (v - S * k);
    S += u * k.transpose();
    O.row(t) = S * Vec<T>(Q.row(t).transpose());
    U.row(t) = u;
  }
  const Mat<T> scores = lower<T>(Q * K.transpose());  // [L x L]  Q K^T . M
  d.equal("F31", "S_L = sum_t u_t k_t^T", U.transpose() * K, S);
  d.equal("F31", "O = (Q K^T . M) U", scores * U, O);

  // ## 2. One matrix from the values to the outputs

  const Mat<T> B = beta.asDiagonal();                                         // [L x L]
  const Mat<T> Lower = strictly_lower<T>(B * (K * K.transpose()));            // [L x L]
  const Mat<T> inverse = solve_unit_lower<T>(Lower, Mat<T>::Identity(L, L));  // (I + L)^{-1}
  const Mat<T> A = scores * (inverse * B);                                    // [L x L]
  d.show("A = (Q K^T . M) T", A);
  d.equal("F40", "O = A V with A = (Q K^T . M) T, T = (I + L)^{-1} B", A * V, O);

  // ## 3. Its entries
  //
  // The write beta_j v_j k_j^T is multiplied by the transitions of the later tokens, in ascending
  // order, and then read by q_i:
  //
  //     A_ij = beta_j k_j^T A_{j+1} A_{j+2} ... A_i q_i.

  Mat<T> entries = Mat<T>::Zero(L, L), without_beta = entries;
  for (Index i = 0; i < L; ++i) {
    Vec<T> probe = Q.row(i).transpose();  // A_{j+1} ... A_i q_i, built from the right
    for (Index j = i; j >= 0; --j) {
      const Vec<T> k = K.row(j).transpose();
      without_beta(i, j) = k.dot(probe);
      entries(i, j) = beta[j] * without_beta(i, j);
      probe -= (beta[j] * k.dot(probe)) * k;  // A_j probe
    }
  }
  d.show("k_j^T P q_i", without_beta, "beta_j k_j^T P q_i", entries);
  d.equal("F40", "A_ij = beta_j k_j^T A_{j+1} ... A_i q_i", entries, A);
  d.differs("F40", "without beta_j it is not A", without_beta, A);
  d.equal("F40", "without beta_j it is (Q K^T . M)(I + L)^{-1}, which acts on B V", without_beta,
          scores * inverse);
  // Why: T = (I + L)^{-1} B scales column j by beta_j. One may leave beta out of the entries, or
  // out of the values it acts on, but not out of both.

  d.equal("F40", "(Q K^T . M)(I + L)^{-1} (B V) = O", scores * (inverse * (B * V)), O);

  // Nobody runs it this way: the inverse of an L x L matrix is cubic in L (counted in `cost`).
  // Chunks keep the inverse small, and the serial depth becomes L / C instead of L; it does not
  // vanish.
}

template void fully_parallel(Derivation<Rational>&);
template void fully_parallel(Derivation<Generic>&);

}  // namespace delta
