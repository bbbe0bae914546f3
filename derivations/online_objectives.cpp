// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Six rules as minimisers
//
// Each rule is the minimiser of "stay close to the (decayed) memory" plus "fit the new pair".
// Instead of setting a derivative to zero, expand f(S* + E) - f(S*) for an arbitrary E: if it
// equals |E|^2, or that plus another square, then S* is the minimiser, there is no other, and
// nothing was differentiated.

template <Field T> void online_objectives(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 32), d_v = d.size("d_v", 2, 24);

  const Mat<T> S = d.matrix(d_v, d_k), E = d.matrix(d_v, d_k);  // [d_v x d_k]
  const Vec<T> k = d.vector(d_k), q = d.vector(d_k), v = d.vector(d_v);
  const T alpha = d.fraction(), beta = d.fraction(), lambda = d.fraction();
  const Vec<T> x = k + lambda * q;  // [d_k]
  d.show("S", S, "E", E, "k", k, "v", v, "alpha", alpha, "beta", beta);

  const auto square = [](const Mat<T>& M) { return T(M.cwiseProduct(M).sum()); };  // |M|^2
  const auto inner = [](const Vec<T>& a, const Vec<T>& b) { return T(a.dot(b)); };
  const T E2 = square(E);       // |E|^2
  const T Ek2 = square(E * k);  // |E k|^2

  // ## 1. A linear fit term: - 2 <M k, target>
  //
  // |S* + E - S_0|^2 - |S* - S_0|^2 = 2 <S* - S_0, E> + |E|^2, and the fit term changes by -2 <E
  // k, target> = -2 <E, target k^T>. The two linear terms cancel exactly when S* = S_0 + target
  // k^T.

  const auto linear = [&](const Mat<T>& M, const Mat<T>& S_0, const Vec<T>& target) {
    return T(square(M - S_0) - T(2) * inner(M * k, target));
  };
  const auto gain = [&](const Mat<T>& best, const Mat<T>& S_0, const Vec<T>& target) {
    return T(linear(best + E, S_0, target) - linear(best, S_0, target));
  };

  const Mat<T> la = S + v * k.transpose();
  d.equal("F57", "linear attention: |M - S|^2 - 2 <M k, v>", gain(la, S, v), E2);

  const Mat<T> mamba2 = alpha * S + v * k.transpose();
  d.equal("F57", "Mamba2: |M - alpha S|^2 - 2 <M k, v>", gain(mamba2, alpha * S, v), E2);

  const Mat<T> delta = S + beta * (v - S * k) * k.transpose();
  d.equal("F57", "DeltaNet: |M - S|^2 - 2 beta <M k, v - S k>",
          gain(delta, S, beta * (v - S * k)), E2);

  const Vec<T> error = v - alpha * (S * k);  // [d_v]
  const Mat<T> gdn = alpha * S + beta * error * k.transpose();
  d.equal("F57", "Gated DeltaNet: |M - alpha S|^2 - 2 beta <M k, v - alpha S k>",
          gain(gdn, alpha * S, beta * error), E2);

  const Vec<T> q_error = v - alpha * (S * x);  // [d_v]
  const Mat<T> q_delta = alpha * S + beta * q_error * k.transpose();
  d.equal("F80", "Q-Delta: J(M) = |M - alpha S|^2 - 2 beta <M k, v - alpha S x>",
          gain(q_delta, alpha * S, beta * q_error), E2);
  // Why (all five): the target is frozen at the old state, so f is |E|^2 plus terms linear in E.

  // ## 2. A squared fit term: Longhorn
  //
  // |M - S|^2 + beta |M k - v|^2 looks at the error of the new state. Its minimiser is the delta
  // rule with the strength beta / (1 + beta |k|^2), and the gain has a second square.

  const auto longhorn = [&](const Mat<T>& M, const T& sign) {
    return T(square(M - S) + sign * beta * square(Mat<T>(M * k - v)));
  };
  const T eps = beta / (T(1) + beta * k.dot(k));
  const Mat<T> best = S + eps * (v - S * k) * k.transpose();  // [d_v x d_k]
  d.show("Longhorn's strength", eps);
  d.equal("F57",
          "Longhorn: f(S* + E) - f(S*) = |E|^2 + beta |E k|^2, strength beta / (1 + beta |k|^2)",
          T(longhorn(best + E, T(1)) - longhorn(best, T(1))), T(E2 + beta * Ek2));
  d.differs("F57", "with a minus before the fit term S* is no minimiser",
            T(longhorn(best + E, T(-1)) - longhorn(best, T(-1))), T(E2 - beta * Ek2));

  // ## 3. What alpha relaxes
  //
  // |M - alpha S|^2 asks the new state to be close to a smaller one: the minimiser without any
  // fit term is alpha S, not S.

  d.equal("F57", "without a fit term the minimiser of |M - alpha S|^2 is alpha S",
          T(square(alpha * S + E - alpha * S)), E2);

  // ## 4. Gradient descent with weight decay?
  //
  // A step on Loss(M) = 1/2 |M k - v|^2 with weight decay 1 - alpha. There are two places where
  // the gradient can be taken, and only one gives the gated rule:

  const auto gradient = [&](const Mat<T>& M) { return Mat<T>((M * k - v) * k.transpose()); };
  const Mat<T> decoupled = alpha * S - beta * gradient(S);
  d.equal("F58", "gradient at alpha S: alpha S - beta grad(alpha S) is the gated delta rule",
          alpha * S - beta * gradient(alpha * S), gdn);
  d.differs("F58", "decoupled weight decay, gradient at S, is another rule", decoupled, gdn);
  d.equal("F58", "the gap is beta (1 - alpha) S k k^T", gdn - decoupled,
          (beta * (T(1) - alpha)) * (S * k) * k.transpose());
}

template void online_objectives(Derivation<Rational>&);
template void online_objectives(Derivation<Generic>&);

}  // namespace delta
