// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Value mixing and time-evolved keys
//
// The memory never holds anything but values: S = sum_tau v_tau b_tau^T. What changes with time
// is not the values but the keys they can be found under. Each later token multiplies every
// earlier key by its transition, so a read with any vector returns a mix of old values, with
// weights of either sign.

template <Field T> void value_mixing(Derivation<T>& d) {
  const Index L = d.size("L", 4, 32), d_k = d.size("d_k", 3, 24), d_v = d.size("d_v", 2, 20);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> beta = d.fractions(L), alpha = d.fractions(L), lambda = d.fractions(L);  // [L]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);

  // ## 1. The recurrence S_t = S_{t-1} P_t + eta_t v_t k_t^T, from S_0 = 0
  //
  // For Q-Delta P_t = alpha_t (I - beta_t x_t k_t^T) and eta_t = beta_t. Beside the state, carry
  // for each past token the key it can now be found under, row tau of E: first eta k, then P^T
  // times itself.

  Mat<T> S = Mat<T>::Zero(d_v, d_k);  // [d_v x d_k]
  Mat<T> E = Mat<T>::Zero(L, d_k);    // [L x d_k]   row tau is b_{tau, t}
  std::vector<Mat<T>> P;
  for (Index t = 0; t < L; ++t) {
    const Vec<T> x = K.row(t).transpose() + lambda[t] * Q.row(t).transpose();  // [d_k]
    P.push_back(alpha[t] * Mat<T>(I - beta[t] * x * K.row(t)));
    S = S * P[t] + beta[t] * V.row(t).transpose() * K.row(t);

    for (Index tau = 0; tau < t; ++tau) E.row(tau) = E.row(tau) * P[t];  // b = P^T b
    E.row(t) = beta[t] * K.row(t);                                       // b_{tt} = eta_t k_t
    d.equal("F76", "S_t = sum_{tau<=t} v_tau b_{tau,t}^T, every t",
            V.topRows(t + 1).transpose() * Mat<T>(E.topRows(t + 1)), S);
  }
  d.show("S_L", S, "evolved keys (rows)", E);
  // Why: S_{t-1} P_t = sum v_tau (P_t^T b_tau)^T. No step mixes the values, they stand on the
  // left.

  // In one formula b_{tau,t} = eta_tau P_t^T P_{t-1}^T ... P_{tau+1}^T k_tau, the latest
  // transition first:

  Vec<T> b = beta[0] * K.row(0).transpose(), wrong_order = b;
  for (Index t = 1; t < L; ++t) b = P[t].transpose() * Mat<T>(b);
  for (Index t = L - 1; t >= 1; --t) wrong_order = P[t].transpose() * Mat<T>(wrong_order);
  d.equal("F76", "b_{1,L} = eta_1 P_L^T ... P_2^T k_1", b, E.row(0).transpose());
  d.differs("F76", "with the earliest transition outermost it is another key", wrong_order, b);

  // ## 2. What any probe reads

  const Vec<T> probe = d.vector(d_k);
  const Vec<T> weights = E * probe;  // [L]   b_tau . probe
  d.show("probe", probe, "weights of the values", weights);
  d.equal("F77", "S q = sum_tau (b_tau . q) v_tau for any q", V.transpose() * Mat<T>(weights),
          S * probe);

  // The weights are no probabilities. A softmax never subtracts an old value; this memory does.

  d.differs("F77", "the weights need not sum to 1", weights.sum(), T(1));
  if constexpr (ordered<T>) {
    // Key (1, 0) is written, then key (1, 1) with beta = 1/2: the first evolved key becomes (1,
    // 0) - 1/2 (1, 1) = (1/2, -1/2), and the probe (0, 1) reads the first value with weight -1/2.
    Vec<T> k1(2), k2(2), q(2);
    k1 << T(1), T(0);
    k2 << T(1), T(1);
    q << T(0), T(1);
    const Vec<T> evolved = k1 - (T(1) / T(2)) * k2.dot(k1) * k2;
    d.less("F77", "a negative weight: (1/2, -1/2) . (0, 1) < 0", evolved.dot(q), T(0));
  }
}

template void value_mixing(Derivation<Rational>&);
template void value_mixing(Derivation<Generic>&);

}  // namespace delta
