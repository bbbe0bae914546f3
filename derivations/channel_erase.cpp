// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # Erasing channel by channel can explode too
//
// Some rules erase with a gate per key channel: S <- S (I - (b . k) k^T), b in [0, 1]^d, k a unit
// vector. The read vector x = b . k is no longer parallel to the write vector k, and a transition
// that is not symmetric can enlarge the state although 0 < x . k < 2. (RWKV-7 reads k and takes
// away along b . k: the transposed transition, with the same norms.)

template <Field T> void channel_erase(Derivation<T>& d) {
  const auto vec = [](T a, T b) {
    Vec<T> x(2);
    x << a, b;
    return x;
  };
  const Mat<T> I = Mat<T>::Identity(2, 2);

  // ## 1. Two tokens

  const Vec<T> k1 = vec(T(5) / 13, T(-12) / 13), k2 = vec(T(12) / 13, T(-5) / 13);
  const Vec<T> x1 = vec(k1[0], 0), x2 = vec(0, k2[1]);  // b = (1, 0), b = (0, 1)
  const Mat<T> A1 = I - x1 * k1.transpose(), A2 = I - x2 * k2.transpose();  // [2 x 2]
  const Mat<T> M = A1 * A2;                                                 // what two tokens do
  d.show("A_1", A1, "A_2", A2, "A_1 A_2", M);
  const T trace = M.trace(), det = M(0, 0) * M(1, 1) - M(0, 1) * M(1, 0);
  d.equal("D3", "x . k = 25/169 for both", x1.dot(k1), T(25) / 169);
  d.equal("D3", "x . k = 25/169 for both, second token", x2.dot(k2), T(25) / 169);
  d.equal("D3", "trace(A_1 A_2) = 52272 / 28561", trace, T(52272) / 28561);
  d.equal("D3", "det(A_1 A_2) = 20736 / 28561", det, T(20736) / 28561);
  if constexpr (ordered<T>)
    d.less("D3", "1 + det < trace: an eigenvalue above 1", T(1 + det), trace);
  // Why: z^2 - trace z + det is negative at z = 1, so its larger root lies beyond.

  const double tr = 52272. / 28561, de = 20736. / 28561;
  d.near("D3", "growth 1.1175 per token", std::sqrt((tr + std::sqrt(tr * tr - 4 * de)) / 2),
         1.1175, 5e-5);

  // ## 2. One step: at most 2 / sqrt(3)
  //
  // With b in {0, 1}^d, |x|^2 = x . k = a, so sigma_max^2 is the larger root of z^2 - (2 - a)
  // z + (1 - a)^2. At z = 4/3 this is (a - 1/3)^2, never negative: sigma_max^2 <= 4/3, with
  // equality at a = 1/3. A decay of sqrt(3)/2 = 0.866 is therefore enough.

  for (int i = 0; i < 20; ++i) {
    const Vec<T> k = d.unit(4);
    Vec<T> x = k;
    for (Index j = 0; j < 4; ++j)
      if (d.random().sign() < 0) x[j] = 0;
    const T a = x.dot(k), z = T(4) / 3;
    d.equal("D3", "z^2 - s z + p at z = 4/3 is (a - 1/3)^2",
            T(z * z - (2 - 2 * a + x.dot(x)) * z + (1 - a) * (1 - a)),
            T((a - T(1) / 3) * (a - T(1) / 3)));
    if constexpr (ordered<T>)
      d.at_most("D3", "and 4/3 is right of the vertex: sigma_max^2 <= 4/3", T((2 - a) / 2), z);
  }
  const T a = T(1) / 3;
  d.equal("D3", "attained at a = 1/3", T(T(16) / 9 - (2 - a) * 4 / 3 + (1 - a) * (1 - a)), T(0));
  d.near("D3", "so decay <= 0.866 suffices", std::sqrt(3.) / 2, 0.866, 5e-4);

  // ## 3. Gates between 0 and 1
  //
  // Let s have length one, m_j = s_j k_j, P the sum of the positive m_j, N that of the negative
  // ones without their sign. Then s . k = P - N, and r = s . x = sum b_j m_j is anywhere between
  // -N and P. What is left of the state has the length
  //
  //     |s - r k|^2 = 1 - 2 r (P - N) + r^2,
  //
  // convex in r, so largest at r = P or r = -N.

  const T P = d.fraction(), N = d.fraction();
  const auto length2 = [&](const T& r) { return T(1 - 2 * r * (P - N) + r * r); };
  d.equal("D3", "at r = P: 1 - P^2 + 2 P N", length2(P), T(1 - P * P + 2 * P * N));
  d.equal("D3", "at r = -N: 1 - N^2 + 2 P N, the same with P and N exchanged", length2(-N),
          T(1 - N * N + 2 * P * N));
  d.equal("D3", "1 - P^2 + 2 P N = 4/3 - 3 (P - 1/3)^2 - 2 P (1 - P - N)",
          T(1 - P * P + 2 * P * N),
          T(T(4) / 3 - 3 * (P - T(1) / 3) * (P - T(1) / 3) - 2 * P * (1 - P - N)));
  // Why this is at most 4/3: P + N = sum |s_j| |k_j| <= |s| |k| = 1, so nothing that is taken from
  // 4/3 is negative. Equality at P = 1/3, N = 2/3.

  if constexpr (ordered<T>)
    for (int i = 0; i < 20; ++i) {
      const Vec<T> key = d.unit(4), s = d.unit(4), gate = d.fractions(4);
      const Vec<T> left = s - s.dot(Vec<T>(gate.cwiseProduct(key))) * key;
      d.at_most("D3", "|s (I - (b . k) k^T)|^2 <= 4/3 |s|^2 for b in [0, 1]^d", left.dot(left),
                T(T(4) / 3 * s.dot(s)));
    }
}

template void channel_erase(Derivation<Rational>&);
template void channel_erase(Derivation<Generic>&);

}  // namespace delta
