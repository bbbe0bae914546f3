// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # The spiral of Theodorus: zero error, unbounded state
//
// Without decay the delta rule has no way to forget by itself. Feed it keys that are orthogonal
// to what it holds, with the target 1: every write is exact, and the state grows like sqrt(t).
// Decay turns this into a bound.

template <Ring T> void spirals(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48);

  // ## 1. One step, any state
  //
  // One value channel, a unit key k, beta = 1, target v, c = S k what the key reads.

  const Vec<T> k = d.unit(d_k), s = d.vector(d_k);  // [d_k]  s is the one row of S
  const Vec<T> apart = s - s.dot(k) * k;            // orthogonal to k
  const Vec<T> next = apart + (T(1) - apart.dot(k)) * k;
  d.show("k", k, "s, orthogonal to k", apart, "after writing 1", next);
  d.equal("D2", "k orthogonal to s, v = 1: e_t = 0", T(T(1) - next.dot(k)), T(0));
  d.equal("D2", "and |s_t|^2 = |s|^2 + 1", next.dot(next), T(apart.dot(apart) + T(1)));
  // Why: Pythagoras. Starting from nothing, |s_t| = sqrt(t): each token adds one right-angled
  // triangle.

  // ## 2. The energy theorem
  //
  // How fast can it be at most? For beta <= 1 the energy grows by no more than beta v^2, and the
  // slack is known exactly:
  //
  //     |s|^2 + beta v^2 - |s_t|^2 = beta c^2 + beta (1 - beta)(v - c)^2.

  const T v = d.integer(), beta = d.fraction(), alpha = d.fraction(), c = s.dot(k);
  const Vec<T> step = s + beta * (v - c) * k;
  d.equal("D2", "|s|^2 + beta v^2 - |s_t|^2 = beta c^2 + beta (1 - beta)(v - c)^2",
          T(s.dot(s) + beta * v * v - step.dot(step)),
          T(beta * c * c + beta * (T(1) - beta) * (v - c) * (v - c)));
  const T ca = alpha * c;
  const Vec<T> decayed = alpha * s + beta * (v - ca) * k;
  d.equal("D2", "the same with alpha s in place of s",
          T(alpha * alpha * s.dot(s) + beta * v * v - decayed.dot(decayed)),
          T(beta * ca * ca + beta * (T(1) - beta) * (v - ca) * (v - ca)));
  if constexpr (ordered<T>) {
    d.at_most("D2", "hence |s_t|^2 <= alpha^2 |s|^2 + beta v^2 for beta <= 1",
              decayed.dot(decayed), T(alpha * alpha * s.dot(s) + beta * v * v));

    // ## 3. Long runs
    //
    // In the plane, with each key at a right angle to the state, in double precision.

    const auto run = [](int tokens, double a) {
      double x = 0, y = 0;
      for (int t = 0; t < tokens; ++t) {
        const double r = std::hypot(x, y), kx = r == 0 ? 1 : -y / r, ky = r == 0 ? 0 : x / r;
        x *= a, y *= a;
        const double error = 1 - (x * kx + y * ky);
        x += error * kx, y += error * ky;
      }
      return std::hypot(x, y);
    };
    d.near("D2", "10,000 tokens without decay: |s| = 100", run(10000, 1), 100, 1e-9);
    d.near("D2", "with alpha = 0.9 the state stays at 1 / sqrt(1 - alpha^2) = 2.294",
           run(10000, 0.9), 2.294, 5e-4);
    d.near("F46", "without decay the state grows with the length: 4 x the tokens, 2 x the state",
           run(40000, 1) / run(10000, 1), 2, 1e-9);
    d.near("F46", "with decay it does not", run(40000, 0.9) / run(10000, 0.9), 1, 1e-12);
  }

  // ## 4. beta = 2
  //
  // beta = 2 reflects. With target 1 and a key against the state, k = -s / |s|, the length grows
  // by 2 at every token: linear, not like a root.

  const Vec<T> unit = d.unit(d_k);
  T length(1);
  for (int t = 0; t < 4; ++t) {
    const Vec<T> state = length * unit, against = -unit;
    const Vec<T> after = state + T(2) * (T(1) - state.dot(against)) * against;
    length += T(2);
    d.equal("D2", "beta = 2, k = -s / |s|: |s_t| = |s| + 2, so 2 t + 1 from length one",
            after.dot(after), T(length * length));
  }
}

template void spirals(Derivation<Rational>&);
template void spirals(Derivation<Generic>&);

}  // namespace delta
