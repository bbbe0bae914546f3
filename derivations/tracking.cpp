// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The tracking bound, where it is attained, and where it is empty
//
// If every factor satisfies |1 - beta a| <= rho < 1 and every drift |r_t| <= r, then
//
//     |e_t| <= rho^t |e_0| + rho (1 - rho^t) / (1 - rho) r,
//
// and the error ends within a radius of rho r / (1 - rho). The bound follows from e_t = (1 - beta
// a) e~_t and e~_t = e_{t-1} + r_t alone: |e_t| <= rho (|e_{t-1}| + r), unrolled.

template <Field T> void tracking(Derivation<T>& d) {
  const Index L = d.size("L", 8, 24), d_k = d.size("d_k", 3, 16);

  // ## 1. On a random sequence, one value channel
  //
  // The first error needs a sample before the first token, v_0 and x_0. Where the text starts at
  // t = 1, e_0 and r_1 are not defined; here the sample 0 is drawn like the others. Keys and
  // queries have length one where there is an order; the identities need no length.

  const auto direction = [&] { return ordered<T> ? d.unit(d_k) : d.vector(d_k); };
  std::vector<T> e, drifts, factors;
  Mat<T> S = d.matrix(1, d_k);              // [1 x d_k]
  Vec<T> x = direction(), v = d.vector(1);  // sample 0
  e.push_back((v - S * x)[0]);
  for (Index t = 1; t <= L; ++t) {
    const Vec<T> k = direction(), q = direction(), v_t = d.vector(1);
    const T beta = d.fraction(), lambda = d.fraction();
    const Vec<T> x_t = k + lambda * q;
    const T drift = ((v_t - v) - S * Vec<T>(x_t - x))[0];  // r_t
    const T error = (v_t - S * x_t)[0];                    // e~_t
    d.equal("E15", "with v_0 and x_0 defined, e~_1 = e_0 + r_1 holds too, and so every t", error,
            T(e.back() + drift));
    S += beta * error * k.transpose();
    e.push_back((v_t - S * x_t)[0]);
    factors.push_back(T(1) - beta * k.dot(x_t));
    drifts.push_back(drift);
    d.equal("F92", "the step of the induction: e_t = (1 - beta a)(e_{t-1} + r_t)", e.back(),
            factors.back() * (e[t - 1] + drift));
    x = x_t, v = v_t;
  }
  if constexpr (ordered<T>) {
    T rho(0), r(0), power(1);
    for (const T& f : factors) rho = std::max<T>(rho, abs(f));
    for (const T& drift : drifts) r = std::max<T>(r, abs(drift));
    d.show("rho", rho, "r", r);
    for (Index t = 0; t <= L; ++t, power *= rho)
      d.at_most("F92", "|e_t| <= rho^t |e_0| + rho (1 - rho^t) / (1 - rho) r, every t", abs(e[t]),
                T(power * abs(e[0]) + rho * (T(1) - power) / (T(1) - rho) * r));
    d.less("F92", "here rho < 1", rho, T(1));
  }

  // ## 2. Equality
  //
  // One key channel, k = x = 1, beta = 1/2, and a target that moves by the same amount at every
  // step, v_t = 3 t from v_0 = 5: every inequality in the proof is an equality.

  T s(0), error = 5, scale(1);  // e_0 = 5, rho = 1/2, r = 3
  const T half = T(1) / 2;
  for (int t = 1; t <= 10; ++t) {
    const T target = 5 + 3 * t;
    s += half * (target - s);
    error = target - s;
    scale *= half;
    d.equal("F92",
            "attained: e_t = rho^t e_0 + rho (1 - rho^t) / (1 - rho) r with rho = 1/2, r = 3",
            error, T(scale * 5 + half * (T(1) - scale) / (T(1) - half) * 3));
  }
  if constexpr (ordered<T>)
    d.less("F92", "after 10 steps within 1/100 of the radius rho r / (1 - rho) = 3",
           abs(T(error - 3)), T(1) / 100);
  d.equal("D7", "the closed form of the equality case at t = 10: 3 + 2 / 2^10", error,
          T(3) + T(2) / 1024);

  // ## 3. Inside (0, 2) at every step, and no rate
  //
  // beta a = 1 / (t + 2) contracts at every step, but sup |1 - beta a| = 1. Then (t + 2)
  // e_t = (t + 1)(e_{t-1} + r), a telescope: without drift e_T = 2 e_0 / (T + 2), slower than any
  // geometric rate; with a constant drift the error grows without bound.

  const T drift(3), start(5);
  T still = start, moving = start;
  for (int t = 1; t <= 200; ++t) {
    const T factor = T(1) - T(1) / (t + 2);
    still = factor * still;
    moving = factor * (moving + drift);
    if (t == 1 || t == 10 || t == 200) {
      d.equal("F93", "no drift: e_T = 2 e_0 / (T + 2)", still, T(2 * start / (t + 2)));
      d.equal("F93", "drift r: e_T = (2 e_0 + r T (T + 3) / 2) / (T + 2)", moving,
              T((2 * start + drift * t * (t + 3) / 2) / (t + 2)));
    }
  }
  if constexpr (ordered<T>) d.less("F93", "unbounded: e_200 > 99 r", 99 * drift, moving);
  d.equal("D7", "the drifting error at T = 200", moving,
          T(2 * start + drift * 200 * 203 / 2) / 202);

  // ## 4. What the bound leaves open
  //
  // r_t contains S_{t-1}, so a bound on r is an assumption about the memory, not a consequence of
  // 0 < beta a < 2. Two tokens of Q-Delta, with unit vectors and beta a = 1, for which every
  // error is zero and the drift grows without limit:

  Mat<T> M(1, 2);
  M << T(1), T(0);
  Vec<T> ka(2), qa(2), kb(2), qb(2);
  ka << T(0), T(1);
  qa << T(-1), T(0);
  kb << T(3) / 5, T(-4) / 5;
  qb << T(-4) / 5, T(-3) / 5;
  Vec<T> before = Vec<T>(ka + T(3) / 4 * qa);
  std::vector<T> moves;  // r_t
  for (int t = 0; t < 8; ++t) {
    const Vec<T> k = t % 2 ? kb : ka, now = k + T(3) / 4 * (t % 2 ? qb : qa);
    moves.push_back(-(M * Vec<T>(now - before))[0]);
    M -= (M * now) * k.transpose();  // beta = 1, v = 0
    d.equal("F94", "while e_t = 0 at every step", (M * now)[0], T(0));
    before = now;
  }
  if constexpr (ordered<T>)
    for (int t = 2; t < 8; ++t)
      d.less("F94", "the drift is larger at every step", abs(moves[t - 1]), abs(moves[t]));
  d.equal("F94", "and the state has grown to (25/16)^4", M(0, 0), T(390625) / 65536);
}

template void tracking(Derivation<Rational>&);
template void tracking(Derivation<Generic>&);

}  // namespace delta
