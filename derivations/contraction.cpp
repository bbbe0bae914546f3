// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Contraction: e_t = (1 - beta a) e~_t
//
// The error of the present sample before the write is e~_t = v - S_{t-1} x, after the write
// e_t = v - S_t x, both read with x = k + lambda q. One number decides how they relate:
// a = k . x, how much of what is written along k is seen by x.

template <Ring T> void contraction(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48), d_v = d.size("d_v", 2, 32);

  const Mat<T> S = d.matrix(d_v, d_k);  // [d_v x d_k]
  const Vec<T> k = d.vector(d_k), q = d.vector(d_k), v = d.vector(d_v);
  const T beta = d.fraction(), lambda = d.fraction();
  const Vec<T> x = k + lambda * q;  // [d_k]
  d.show("S", S, "k", k, "q", q, "v", v, "beta", beta, "lambda", lambda);

  // ## 1. The identity

  const Vec<T> before = v - S * x;                        // [d_v]  e~
  const Mat<T> next = S + beta * before * k.transpose();  // [d_v x d_k]
  const Vec<T> after = v - next * x;                      // [d_v]  e
  const T a = k.dot(x);
  d.show("a", a, "e~ (before)", before, "e (after)", after);

  d.equal("F89", "a = |k|^2 + lambda k . q", a, T(k.dot(k) + lambda * k.dot(q)));
  d.equal("F89", "e_t = (1 - beta a) e~_t", after, (T(1) - beta * a) * before);
  // Why: S_t x = S x + beta e~ (k . x). So the error of this sample shrinks exactly when |1 -
  // beta a| < 1, that is 0 < beta a < 2. Nothing is said of other samples, nor of S.

  d.differs("E9", "the two errors share a letter in print; they are not equal", before, after);

  // ## 2. Unit vectors

  if constexpr (ordered<T>) {
    for (int trial = 0; trial < 20; ++trial) {
      const Vec<T> ku = d.unit(d_k), qu = d.unit(d_k);
      const T l = d.fraction(), b = trial == 0 ? T(1) : d.fraction();
      const T au = ku.dot(Vec<T>(ku + l * qu));
      d.at_most("F90", "unit q, k: 1 - lambda <= a", T(1) - l, au);
      d.at_most("F90", "unit q, k: a <= 1 + lambda", au, T(1) + l);
      d.less("F90", "0 < lambda < 1, 0 < beta <= 1: 0 < beta a", T(0), b * au);
      d.less("F90", "0 < lambda < 1, 0 < beta <= 1: beta a < 2", b * au, T(2));
    }
  }
  // Why: a = 1 + lambda k . q and |k . q| <= 1 (Cauchy, Schwarz); beta (1 - lambda) > 0 and beta
  // (1 + lambda) < 2.

  const Vec<T> u = d.unit(d_k);
  d.equal("F90", "a = 1 + lambda is reached at q = k", T(u.dot(Vec<T>(u + lambda * u))),
          T(T(1) + lambda));
  d.equal("F90", "a = 1 - lambda is reached at q = -k", T(u.dot(Vec<T>(u - lambda * u))),
          T(T(1) - lambda));

  // ## 3. From one token to the next
  //
  // The error that token t finds is the one that token t-1 left, plus what has moved: the target,
  // and the reading of the old memory.

  const Vec<T> x2 = d.vector(d_k), v2 = d.vector(d_v);    // the next sample
  const Vec<T> drift = (v2 - v) - next * Vec<T>(x2 - x);  // [d_v]  r_t
  d.equal("F91", "e~_t = e_{t-1} + r_t, r_t = (v_t - v_{t-1}) - S_{t-1}(x_t - x_{t-1})",
          v2 - next * x2, after + drift);
  // Why: v_t - S_{t-1} x_t minus v_{t-1} - S_{t-1} x_{t-1}; the same state is read twice.
}

template void contraction(Derivation<Rational>&);
template void contraction(Derivation<Generic>&);

}  // namespace delta
