// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Tracking with decay: the term (1 - alpha) S x
//
// The tracking bound is proved without decay, but the rule that is used has one. The write still
// contracts, relative to the decayed memory. What is new is that forgetting is itself a drift:
// the memory that predicted S_{t-1} x now predicts alpha S_{t-1} x.

template <Field T> void gated_tracking(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48), d_v = d.size("d_v", 2, 32);

  const Mat<T> S = d.matrix(d_v, d_k);  // [d_v x d_k]  S_{t-1}
  const Vec<T> k = d.vector(d_k), q = d.vector(d_k);
  const Vec<T> v_last = d.vector(d_v), v = d.vector(d_v), x_last = d.vector(d_k);
  const T alpha = d.fraction(), beta = d.fraction(), lambda = d.fraction();
  const Vec<T> x = k + lambda * q;  // [d_k]
  d.show("S", S, "k", k, "x", x, "v", v, "alpha", alpha, "beta", beta);

  // ## 1. Contraction, relative to the decayed memory

  const Vec<T> before = v - alpha * (S * x);                      // [d_v]
  const Mat<T> next = alpha * S + beta * before * k.transpose();  // [d_v x d_k]
  const Vec<T> after = v - next * x;                              // [d_v]
  d.equal("F95", "e_t = (1 - beta a)(v - alpha S x)", after, (T(1) - beta * k.dot(x)) * before);

  // ## 2. Where that error comes from

  const Vec<T> e_last = v_last - S * x_last;                   // [d_v]  e_{t-1}
  const Vec<T> drift = (v - v_last) - S * Vec<T>(x - x_last);  // [d_v]  r_t
  const Vec<T> forgotten = (T(1) - alpha) * (S * x);           // [d_v]
  d.show("e_{t-1}", e_last, "r_t", drift, "(1 - alpha) S x", forgotten);
  d.equal("F95", "v - alpha S x = e_{t-1} + r_t + (1 - alpha) S x", before,
          e_last + drift + forgotten);
  d.differs("F95", "without the last term the identity is false", before, e_last + drift);
  // Why: v - alpha S x = (v - S x) + (1 - alpha) S x, and v - S x = e_{t-1} + r_t as without
  // decay.

  // ## 3. What can be said with alpha
  //
  // The bound holds with r replaced by a bound on |r_t + (1 - alpha_t) S_{t-1} x_t|. This too
  // contains the memory; but with decay the memory itself can be bounded: where alpha G <= 1 (see
  // `exploding_state`) a zero-target sequence never grows, and with alpha G < 1 the state stays
  // within |beta v| / (1 - alpha G). On one channel, k = x = 1, the new term is visible as a
  // bias: the error does not go to zero even for a target that never moves.

  const T fixed = (T(1) - alpha) * (T(1) - beta) / (T(1) - alpha * (T(1) - beta));
  T s = T(1) - fixed;  // the state that reproduces itself, v = 1
  s = alpha * s + beta * (T(1) - alpha * s);
  d.equal("F97",
          "a constant target 1: the error rests at (1-alpha)(1-beta) / (1 - alpha (1-beta))",
          T(T(1) - s), fixed);
  const T one(1), none = (one - one) * (one - beta) / (one - one * (one - beta));
  d.equal("F97", "which vanishes for alpha = 1", none, T(0));
}

template void gated_tracking(Derivation<Rational>&);
template void gated_tracking(Derivation<Generic>&);

}  // namespace delta
