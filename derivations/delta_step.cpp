// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The delta rule: one step of gradient descent, and of Kaczmarz
//
//     S_t = S_{t-1} + beta_t (v_t - S_{t-1} k_t) k_t^T.
//
// The memory predicts the value under the key, and the error is written along the key. That is a
// gradient step on a squared error; with the right step size it is the projection of Kaczmarz.

template <Field T> void delta_step(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48), d_v = d.size("d_v", 2, 32);

  const Mat<T> S = d.matrix(d_v, d_k);                // [d_v x d_k]  S_{t-1}
  const Vec<T> k = d.vector(d_k), v = d.vector(d_v);  // [d_k], [d_v]
  const T beta = d.fraction();
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  d.show("S", S, "k", k, "v", v, "beta", beta);

  // ## 1. Three ways to write the step

  const Vec<T> prediction = S * k;                                  // [d_v]
  const Mat<T> next = S + beta * (v - prediction) * k.transpose();  // [d_v x d_k]  S_t
  d.show("S_t", next);

  d.equal("F20", "S_t = S (I - beta k k^T) + beta v k^T",
          S * Mat<T>(I - beta * k * k.transpose()) + beta * v * k.transpose(), next);
  d.equal("F20", "S_t = S - beta (S k - v) k^T", S - beta * (S * k - v) * k.transpose(), next);

  // Taking out what the key read and putting in a mix of old and new is the same step, for any
  // key:

  const Vec<T> v_new = beta * v + (T(1) - beta) * prediction;  // [d_v]
  d.equal("F21", "S_t = S - v_old k^T + v_new k^T, v_new = beta v + (1 - beta) v_old",
          S - prediction * k.transpose() + v_new * k.transpose(), next);
  // Why: v_new - v_old = beta (v - v_old).

  // ## 2. It is the gradient of a squared error
  //
  // Loss(S) = 1/2 |S k - v|^2. Move S by any E and expand the square:
  //
  //     Loss(S + E) - Loss(S) = (S k - v) . E k + 1/2 |E k|^2 = <(S k - v) k^T, E> + 1/2 |E k|^2.
  //
  // The part that is linear in E is the gradient, G = (S k - v) k^T, with no limit taken.

  const auto loss = [&](const Mat<T>& M) {
    const Vec<T> r = M * k - v;
    return T(r.dot(r) / T(2));
  };
  const Mat<T> E = d.matrix(d_v, d_k);           // [d_v x d_k]
  const Mat<T> G = (S * k - v) * k.transpose();  // [d_v x d_k]
  const Vec<T> Ek = E * k;                       // [d_v]
  d.equal("F26", "Loss(S + E) - Loss(S) = <G, E> + 1/2 |E k|^2", T(loss(S + E) - loss(S)),
          T(G.cwiseProduct(E).sum() + Ek.dot(Ek) / T(2)));
  T one_component(0);  // dLoss/dS_01, from its definition: r_0 = sum_j S_0j k_j - v_0
  for (Index j = 0; j < d_k; ++j) one_component += S(0, j) * k[j];
  d.equal("F26", "component by component, dLoss/dS_ab = (S k - v)_a k_b",
          T((one_component - v[0]) * k[1]), G(0, 1));
  d.equal("F27", "the delta rule is S - beta G, a gradient step of size beta", S - beta * G,
          next);
  // Why: the state is moved, not a weight of the model; and the step is proportional to the
  // error.

  // ## 3. What the next reading returns

  const T n = k.dot(k);  // |k|^2
  d.equal("F22", "S_t k = (1 - beta |k|^2) S k + beta |k|^2 v", next * k,
          (T(1) - beta * n) * prediction + (beta * n) * v);
  const T kaczmarz = T(1) / n;
  const Mat<T> exact = S + kaczmarz * (v - prediction) * k.transpose();
  d.equal("F22", "beta = 1 / |k|^2 (Kaczmarz): S_t k = v", exact * k, v);
  // Why: k^T k = |k|^2. Kaczmarz projects S onto the matrices that map k to v; any other such
  // matrix differs from S_t by something orthogonal to the step:
  const Mat<T> other = exact + E - Mat<T>((E * k) * k.transpose()) / n;  // also maps k to v
  d.equal("F22", "another M with M k = v: (M - S_t) is orthogonal to (S_t - S)",
          T((other - exact).cwiseProduct(exact - S).sum()), T(0));

  d.equal("F23", "beta = 0: nothing changes", S + T(0) * (v - prediction) * k.transpose(), S);
  d.equal("F23", "zero error: nothing changes", S + beta * (S * k - prediction) * k.transpose(),
          S);
  const Vec<T> unit = d.unit(d_k);
  d.equal("F23", "beta = 1 and a unit key: full replacement",
          (S + (v - S * unit) * unit.transpose()) * unit, v);
  d.differs("F23", "beta = 1 and a key of another length: no replacement",
            (S + (v - prediction) * k.transpose()) * k, v);

  // ## 4. The smallest example
  //
  // k = (1, 0), v = (3, 4), beta = 1. Whatever the state was, its first column becomes v.

  const Mat<T> any = d.matrix(2, 2);
  Vec<T> first(2), value(2);
  first << T(1), T(0);
  value << T(3), T(4);
  const Mat<T> after = any + (value - any * first) * first.transpose();
  d.show("S", any, "S_t", after);
  d.equal("F24", "the first column is (3, 4) whatever it was", after.col(0), value);
  d.equal("F24", "the second column stays", after.col(1), any.col(1));

  // ## 5. Why keys are normalised
  //
  // Ten times the key: the write beta v k^T grows by 10, the erase beta S k k^T by 100. They no
  // longer match, and a unit key scaled by 10 overshoots by 99.

  const Vec<T> long_key = T(10) * unit;
  d.equal("F25", "the write grows by 10", v * long_key.transpose(), T(10) * v * unit.transpose());
  d.equal("F25", "the erase grows by 100", (S * long_key) * long_key.transpose(),
          T(100) * (S * unit) * unit.transpose());
  const Mat<T> overshot = S + (v - S * long_key) * long_key.transpose();
  d.equal("F25", "the error after the write is -99 times the error before",
          v - overshot * long_key, T(-99) * (v - S * long_key));
  // Why: F22 with beta |k|^2 = 100 leaves (1 - 100) of the error.
}

template void delta_step(Derivation<Rational>&);
template void delta_step(Derivation<Generic>&);

}  // namespace delta
