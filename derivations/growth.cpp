// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # Which rules can enlarge their own state
//
// With unit keys and no writes a token turns the row s of a state into s A. If |s A| <= |s| for
// every s, no sequence of tokens can make the state grow. Rules that erase along the key they read
// have this property; rules that erase along another key need a decay that makes up for it.

template <Field T> void growth(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 24);

  // Without an order the length of a key plays no role: n stands for |k|^2.
  const Vec<T> k = d.vector(d_k), s = d.vector(d_k);  // [d_k]
  const T n = k.dot(k), alpha = d.fraction(), beta = d.fraction();
  d.show("k", k, "s", s);

  // ## 1. Rules that cannot
  //
  // DeltaNet, and with it Kaczmarz, EFLA and Longhorn, which only choose beta:

  const Vec<T> after = s - beta * s.dot(k) * k;
  d.equal("D3", "DeltaNet: |s|^2 - |s A|^2 = beta (2 - beta n)(s . k)^2",
          T(s.dot(s) - after.dot(after)), T(beta * (T(2) - beta * n) * s.dot(k) * s.dot(k)));
  // Why it cannot grow for 0 <= beta n <= 2: nothing on the right is negative.

  // A decay in front, one number (Gated DeltaNet) or one per channel (KDA), shrinks first, and the
  // norms multiply. DeltaProduct is a product of such steps. Comba reads c k before the decay:

  const T c = d.fraction(), b = beta * c;
  const Vec<T> comba = alpha * s - b * s.dot(k) * k;
  d.equal("D3",
          "Comba, p = c k: alpha^2 |s|^2 - |s A|^2 = b (2 alpha - b n)(s . k)^2, b = beta c",
          T(alpha * alpha * s.dot(s) - comba.dot(comba)),
          T(b * (T(2) * alpha - b * n) * s.dot(k) * s.dot(k)));
  // Why: for b n <= 2 alpha it shrinks by alpha at least; beyond, the eigenvalue alpha - b n along k
  // is above -1 as long as b n <= 1 + alpha.

  if constexpr (ordered<T>)
    for (int i = 0; i < 8; ++i) {
      const Vec<T> key = d.unit(d_k), a = d.fractions(d_k), state = d.vector(d_k);
      const T strength = T(2) * d.fraction();
      const Vec<T> decayed = state.cwiseProduct(a),
                   left = decayed - strength * decayed.dot(key) * key;
      d.at_most("D3", "KDA, unit key, beta up to 2: |s D (I - beta k k^T)| <= |s|",
                left.dot(left), state.dot(state));
    }

  // ## 2. The preconditioned rule can: at most 1.084 a step
  //
  // It reads k and takes away along y = M k, M diagonal between 1/w and w. With c = w + 1/w each
  // entry has m^2 <= c m - 1, equality at both ends. So for a unit key, a = k . y and |y|^2 <= c a -
  // 1, and sigma_max^2 of I - beta k y^T is the larger root of z^2 - s z + p with
  //
  //     s = 2 - 2 beta a + beta^2 |y|^2 <= 2 - 2 beta a + beta^2 (c a - 1),    p = (1 - beta a)^2.
  //
  // At z = 4 (c - beta) / (c (4 - beta c)) this is a square, whatever a is:

  const T w = d.fraction(), width = w + T(1) / w, a = d.integer();
  const T z = T(4) * (width - beta) / (width * (T(4) - beta * width));
  const T sum = T(2) - T(2) * beta * a + beta * beta * (width * a - T(1));
  const T p = (T(1) - beta * a) * (T(1) - beta * a);
  const T root = T(1) - beta * a + (beta * width - T(2)) * z / T(2);
  d.equal("D3", "z^2 - s z + p = (1 - beta a + (beta c - 2) z / 2)^2", T(z * z - sum * z + p),
          T(root * root));
  if constexpr (ordered<T>)
    for (int i = 0; i <= 10; ++i) {  // 1/w <= m <= w with w = 3/2: a from 2/3 to 3/2
      const T b = d.fraction(), c = T(13) / 6, at = T(2) / 3 + T(i) / 12;
      d.at_most("D3", "z is right of the vertex: s / 2 <= z for w = 3/2 and every a",
                T((T(2) - T(2) * b * at + b * b * (c * at - T(1))) / 2),
                T(T(4) * (c - b) / (c * (T(4) - b * c))));
    }
  // Why sigma_max^2 <= z while beta c < 4: the polynomial is not negative there, and a smaller |y|^2
  // only adds to it. The bound rises with beta: its derivative has the sign of c^2 - 4 >= 0.

  const T c_w = T(13) / 6;  // w = 3/2
  d.equal("D3", "w = 3/2, beta = 1: sigma_max^2 <= 168 / 143",
          T(T(4) * (c_w - T(1)) / (c_w * (T(4) - c_w))), T(T(168) / 143));
  d.near("D3", "that is 1.084 a step", std::sqrt(168. / 143), 1.084, 5e-4);
  d.near("D3", "so a decay of at most 0.9226 makes up for it", std::sqrt(143. / 168), 0.9226,
         5e-5);

  // ## 3. How much of the bounds can be had, token after token
  //
  // A search: from the state as it is, try many keys and every choice at the ends of the gates,
  // keep what leaves the longest state, then vary the best key by less and less. What it returns is
  // reached, so it is a lower bound on the worst case. The norm of a product and of its transpose
  // are equal, so RWKV-7, which reads kappa and takes away along b . kappa, stands for Gated
  // DeltaNet-2 too, which reads b . k and takes away along k.

  if constexpr (ordered<T>) {
    using V = Eigen::VectorXd;
    const auto direction = [&](Index m) {
      V x(m);
      for (Index j = 0; j < m; ++j) x[j] = d.random().normal();
      return V(x.normalized());
    };
    const int tokens = 120, tries = 2000;
    const auto found = [&](Index m, auto along) {  // growth per token; along(key) is taken away
      double most = 0;
      for (int start = 0; start < 3; ++start) {
        V state = direction(m);
        double log_growth = 0;
        for (int t = 0; t < tokens; ++t) {
          V best = V::Zero(m), best_key = state;
          for (int i = 0; i < tries; ++i) {
            const double near = i < tries / 2 ? 1 : 0.3 * std::pow(0.99, i - tries / 2);
            const V key =
                near == 1 ? direction(m) : V((best_key + near * direction(m)).normalized());
            const V next = state - state.dot(key) * V(along(key));
            if (next.squaredNorm() > best.squaredNorm()) best = next, best_key = key;
          }
          if (t >= tokens / 2)
            log_growth += std::log(best.norm());  // the first half finds its way
          state = best.normalized();
        }
        most = std::max(most, std::exp(log_growth / (tokens - tokens / 2)));
      }
      return most;
    };
    const auto end = [&](const V& key, double low, double high) {  // each channel at an end
      V y = key;
      for (Index j = 0; j < y.size(); ++j) y[j] *= d.random().sign() < 0 ? low : high;
      return y;
    };
    const auto delta = [&](const V& key) { return V(2 * d.random().uniform() * key); };
    const auto gated = [&](const V& key) { return end(key, 0, 1); };
    const auto scaled = [&](const V& key) { return end(key, 1 / 1.5, 1.5); };
    d.near("D3", "DeltaNet, beta up to 2, three channels: none, as proved", found(3, delta), 1,
           1e-9);
    d.near("D3", "GDN-2 and RWKV-7, two channels: 1.118 per token", found(2, gated), 1.118, 1e-3);
    d.near("D3", "three channels: 1.146", found(3, gated), 1.146, 3e-3);
    d.near("D3", "preconditioned, two channels: 1.073", found(2, scaled), 1.073, 1e-3);
    d.near("D3", "three channels: 1.083", found(3, scaled), 1.083, 3e-3);
  }
  // Two channels do not reach the bound of one step, 2 / sqrt(3) = 1.155 (see `channel_erase`) and
  // 1.084: what one token leaves is not what the next can enlarge most. Three come close. Q-Delta,
  // whose bound is the same in every direction, reaches it at every token. Whether trained models
  // come near any of these is not known.
}

template void growth(Derivation<Rational>&);
template void growth(Derivation<Generic>&);

}  // namespace delta
