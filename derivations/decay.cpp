// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Decay: unrolling a memory that forgets
//
//     S_t = alpha_t S_{t-1} + v_t k_t^T,    gamma_t = alpha_1 alpha_2 ... alpha_t.
//
// A write of age t - i has been multiplied by every decay since. Unrolled, the state is a
// weighted sum, and the mask M of ones becomes a mask H of decays. A constant alpha is RetNet, an
// alpha computed from the token is Mamba2.

template <Field T> void decay(Derivation<T>& d) {
  const Index L = d.size("L", 4, 32), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> alpha = d.fractions(L);                      // [L]
  const Mat<T> S0 = d.matrix(d_v, d_k);                     // [d_v x d_k]
  d.show("alpha", alpha, "S_0", S0);

  // ## 1. Token by token

  std::vector<Mat<T>> S{S0};  // S[t] is S_t
  Mat<T> O(L, d_v);           // [L x d_v]
  Vec<T> gamma(L + 1);        // gamma[t] is gamma_t, gamma_0 = 1
  gamma[0] = T(1);
  for (Index t = 1; t <= L; ++t) {
    S.push_back(alpha[t - 1] * S[t - 1] + V.row(t - 1).transpose() * K.row(t - 1));
    O.row(t - 1) = S[t] * Vec<T>(Q.row(t - 1).transpose());
    gamma[t] = alpha[t - 1] * gamma[t - 1];
  }
  d.show("gamma (from 0)", gamma, "S_L", S[L]);

  // ## 2. Unrolled from any start
  //
  // From s to t the state at s has decayed by alpha_{s+1} ... alpha_t = gamma_t / gamma_s.

  for (Index s = 0; s < std::min<Index>(L, 4); ++s)
    for (Index t = s; t <= std::min<Index>(L, 6); ++t) {
      Mat<T> sum = (gamma[t] / gamma[s]) * S[s];
      for (Index i = s + 1; i <= t; ++i)
        sum += (gamma[t] / gamma[i]) * V.row(i - 1).transpose() * K.row(i - 1);
      if (s == 0)
        d.equal("F11", "S_t = gamma_t S_0 + sum_{i<=t} (gamma_t / gamma_i) v_i k_i^T", sum, S[t]);
      else
        d.equal(
            "F12",
            "S_t = (gamma_t/gamma_s) S_s + sum_{s<i<=t} (gamma_t/gamma_i) v_i k_i^T, all s <= t",
            sum, S[t]);
    }
  // Why: by induction on t. Multiplying the sum by alpha_{t+1} turns each gamma_t into
  // gamma_{t+1}, and the new write enters with gamma_{t+1} / gamma_{t+1} = 1.

  // ## 3. The mask of decays
  //
  // H_ij = alpha_{j+1} ... alpha_i for j <= i, 1 on the diagonal, 0 above. Built from running
  // products it needs no division, and a decay of zero is as good as any other.

  Mat<T> H = Mat<T>::Identity(L, L);  // [L x L]
  for (Index i = 1; i < L; ++i) H.row(i).head(i) = alpha[i] * H.row(i - 1).head(i);
  d.show("H", H);

  Mat<T> ratios = Mat<T>::Zero(L, L);
  for (Index i = 0; i < L; ++i)
    for (Index j = 0; j <= i; ++j) ratios(i, j) = gamma[i + 1] / gamma[j + 1];
  d.equal("F13", "H_ij = gamma_i / gamma_j where no alpha is zero", ratios, H);

  const Mat<T> QK = Q * K.transpose();                                        // [L x L]
  const Vec<T> since_start = gamma.tail(L);                                   // [L]
  const Mat<T> from_start = since_start.asDiagonal() * (Q * S0.transpose());  // [L x d_v]
  d.equal("F13", "O = D_g Q S_0^T + (Q K^T . H) V", from_start + H.cwiseProduct(QK) * V, O);
  d.differs("F13", "with the mask M of ones the output is another", from_start + lower<T>(QK) * V,
            O);
  // Why: o_t = S_t q_t. The write v_i k_i^T contributes v_i (k_i . q_t), decayed by
  // gamma_t / gamma_i.

  // ## 4. One constant for all tokens, and one decay for all associations
  //
  // With alpha_t = a the weight of a write of age n is a^n.

  const T a = alpha[0];
  Mat<T> constant = Mat<T>::Zero(d_v, d_k);
  for (Index t = 0; t < 3; ++t) constant = a * constant + V.row(t).transpose() * K.row(t);
  d.equal("F10", "constant decay: S_3 = a^2 v_1 k_1^T + a v_2 k_2^T + v_3 k_3^T", constant,
          (a * a) * V.row(0).transpose() * K.row(0) + a * V.row(1).transpose() * K.row(1) +
              V.row(2).transpose() * K.row(2));
  d.equal("F10", "alpha = 1 is linear attention", T(1) * S0 + V.row(0).transpose() * K.row(0),
          S0 + V.row(0).transpose() * K.row(0));

  // Decay cannot choose: whatever was stored under a key that the write does not touch loses the
  // same share, wanted or not.

  const Vec<T> k = K.row(0).transpose(), probe = d.vector(d_k);
  const Vec<T> apart = probe - (probe.dot(k) / k.dot(k)) * k;  // orthogonal to k
  const Mat<T> next = a * S0 + V.row(0).transpose() * k.transpose();
  d.equal("F18", "S_t x = alpha S_{t-1} x for every x orthogonal to the key", next * apart,
          a * (S0 * apart));
  d.equal("F18", "alpha = 0 clears", T(0) * S0 + V.row(0).transpose() * k.transpose(),
          V.row(0).transpose() * k.transpose());
}

template void decay(Derivation<Rational>&);
template void decay(Derivation<Generic>&);

}  // namespace delta
