// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>

namespace delta {

// # Every error contracts and the state explodes
//
// For Q-Delta with unit vectors 0 < beta a < 2, so the error of the present sample shrinks at
// every step. That says nothing of the state. Here is a sequence for which the error after every
// write is exactly zero and the state grows by 25/16 every two tokens; then the sharp bound on
// one step, and from it a certificate under which no sequence can grow.

template <Field T> void exploding_state(Derivation<T>& d) {
  const auto vec = [](T a, T b) {
    Vec<T> x(2);
    x << a, b;
    return x;
  };

  // ## 1. Two tokens, repeated
  //
  // lambda = 3/4, beta = 1, v = 0. Each key is orthogonal to the state, so the state is only
  // moved by what the query reads; and the query points against the state.

  const Vec<T> k[] = {vec(0, 1), vec(T(3) / 5, T(-4) / 5)},
               q[] = {vec(-1, 0), vec(T(-4) / 5, T(-3) / 5)};
  for (int i = 0; i < 2; ++i) {
    d.equal("D1", "the vectors have length one: keys", k[i].dot(k[i]), T(1));
    d.equal("D1", "the vectors have length one: queries", q[i].dot(q[i]), T(1));
    d.equal("D1", "k . q = 0, so a = 1 and beta a is in (0, 2)", k[i].dot(q[i]), T(0));
  }
  d.show("k_1", k[0], "q_1", q[0], "k_2", k[1], "q_2", q[1]);

  Mat<T> S(1, 2),
      weak = S;  // [1 x 2]  the state, and that of a weaker write with a stronger query
  S << T(1), T(0);
  weak = S;
  T power(1);  // (25/16)^n after 2 n tokens
  for (int t = 0; t < 40; ++t) {
    const Vec<T> key = k[t % 2], x = key + T(3) / 4 * q[t % 2], y = key + T(4) / 5 * q[t % 2];
    S -= (S * x) * key.transpose();  // beta = 1, v = 0
    d.equal("D1", "beta = 1, lambda = 3/4: e_t = 0 after every write", (S * x)[0], T(0));

    const T before = -(weak * y)[0];
    weak += T(15) / 16 * before * key.transpose();
    d.equal("D1", "beta = 15/16, lambda = 4/5: e_t = e~_t / 16", -(weak * y)[0], T(before / 16));
    d.equal("D1", "and the same state", weak, S);
    if (t % 2 == 1) {
      power *= T(25) / 16;
      d.equal("D1", "S_2n = (25/16)^n S_0", S(0, 0), power);
      d.equal("D1", "its second channel is 0 again", S(0, 1), T(0));
    }
  }
  d.near("D1", "after 40 tokens it has grown by 7523", std::pow(25. / 16, 20), 7523, 0.5);

  // Decay helps only when it is strong: alpha = 4/5 is neutral exactly.

  Mat<T> neutral(1, 2);
  neutral << T(1), T(0);
  for (int t = 0; t < 2; ++t) {
    neutral *= T(4) / 5;
    neutral -= (neutral * Vec<T>(k[t] + T(3) / 4 * q[t])) * k[t].transpose();
  }
  d.equal("D1", "alpha = 4/5: S_2 = S_0", neutral(0, 0), T(1));
  d.near("D1", "alpha = 0.81: 144 after 400 tokens", std::pow(0.81 * 1.25, 400), 144, 0.5);
  d.near("D1", "alpha = 0.79 dies", std::pow(0.79 * 1.25, 400), 0, 0.01);

  // ## 2. Without a period: the logarithmic spiral
  //
  // Let the key be the state's direction turned by a right angle. The state turns by atan(3/4)
  // and grows by 5/4 at every token, |S_t| = (5/4)^t.

  Vec<T> u = vec(1, 0);  // direction of the state
  T length(1);
  S << T(1), T(0);
  for (int t = 0; t < 12; ++t) {
    const Vec<T> key = vec(-u[1], u[0]), query = -u, x = key + T(3) / 4 * query;
    S -= (S * x) * key.transpose();
    u = vec(T(4) / 5 * u[0] - T(3) / 5 * u[1], T(3) / 5 * u[0] + T(4) / 5 * u[1]);
    length *= T(5) / 4;
    d.equal("D1", "S_t = (5/4)^t times a unit vector, turned by atan(3/4) each token", S,
            (length * u).transpose());
  }
  // At 30 degrees, beta lambda = 1 / sqrt(3): six tokens make half a turn.
  double s0 = 1, s1 = 0;
  for (int t = 0; t < 6; ++t) {
    const double a0 = s0, a1 = s1, l = 1 / std::sqrt(3.0);
    s0 = a0 - l * a1, s1 = a1 + l * a0;
  }
  d.near("D1", "30 degrees a token: the monodromy after six is -(4/3)^3", s0, -64. / 27, 1e-12);

  // ## 3. The sharp bound on one step
  //
  // A = I - beta x k^T changes only the plane of x and k. There A A^T has two eigenvalues with
  // sum s and product p,
  //
  //     s = 2 - 2 beta a + beta^2 |x|^2 |k|^2,    p = det(A)^2 = (1 - beta a)^2,
  //
  // so sigma_max^2 is the larger root of z^2 - s z + p. Over all unit q, k it is at most
  // G^2 = 1 + beta lambda^2 / (2 - beta) for 0 < beta <= 1.

  const auto G2 = [](const T& beta, const T& lambda) {
    return T(1 + beta * lambda * lambda / (2 - beta));
  };
  const auto polynomial = [](const T& z, const T& beta, const T& lambda,
                             const T& kq) {  // z^2 - s z + p
    const T a = 1 + lambda * kq, x2 = 1 + 2 * lambda * kq + lambda * lambda;
    const T s = 2 - 2 * beta * a + beta * beta * x2, p = (1 - beta * a) * (1 - beta * a);
    return T(z * z - s * z + p);
  };
  for (int trial = 0; trial < 20; ++trial) {
    const Vec<T> key = d.unit(3), query = d.unit(3);
    const T beta = d.fraction(), lambda = d.fraction();
    const Vec<T> x = key + lambda * query;
    const Mat<T> A = Mat<T>::Identity(3, 3) - beta * x * key.transpose();
    const T a = x.dot(key), s = 2 - 2 * beta * a + beta * beta * x.dot(x);
    d.equal("D1", "trace(A A^T) = d - 2 + s", T((A * A.transpose()).trace()), T(1 + s));
    const T det = A(0, 0) * (A(1, 1) * A(2, 2) - A(1, 2) * A(2, 1)) -
                  A(0, 1) * (A(1, 0) * A(2, 2) - A(1, 2) * A(2, 0)) +
                  A(0, 2) * (A(1, 0) * A(2, 1) - A(1, 1) * A(2, 0));
    d.equal("D1", "det(A) = 1 - beta a", det, T(1 - beta * a));

    // At z = G^2 the polynomial is a square, (beta lambda (k . q + c))^2 with
    // c = lambda (1 - beta) / (2 - beta). So it is never negative, and it vanishes at k . q = -c.

    const T c = lambda * (1 - beta) / (2 - beta), root = beta * lambda * (key.dot(query) + c);
    d.equal("D1", "z^2 - s z + p at z = G^2 is (beta lambda (k . q + c))^2",
            polynomial(G2(beta, lambda), beta, lambda, key.dot(query)), T(root * root));
    d.equal("D1", "attained at k . q = -lambda (1 - beta) / (2 - beta)",
            polynomial(G2(beta, lambda), beta, lambda, -c), T(0));
    if constexpr (ordered<T>)
      d.at_most("D1", "and G^2 is right of the vertex s / 2, so sigma_max <= G", T(s / 2),
                G2(beta, lambda));
  }

  // A concrete adversary: beta = 1/2, lambda = 21/25, c = 7/25. The state (1, 0) has length one,
  // its image G.

  const T lambda = T(21) / 25, half = T(1) / 2;
  const Vec<T> key = vec(T(7) / 25, T(24) / 25), x = key + lambda * vec(-1, 0);
  Vec<T> image = vec(1, 0);
  image -= half * image.dot(x) * key;
  d.show("k", key, "x", x, "image of (1, 0)", image);
  d.equal("D1", "|image|^2 = G^2 = 772/625", image.dot(image), G2(half, lambda));

  // ## 4. The certificate alpha G <= 1
  //
  // If alpha_t G(beta_t, lambda_t) <= 1 at every token, no sequence of unit vectors can enlarge
  // the state.

  const auto limit = [](double b, double l) { return 1 / std::sqrt(1 + b * l * l / (2 - b)); };
  d.near("D1", "lambda = 1, beta = 1: alpha <= 0.7071", limit(1, 1), 0.7071, 5e-5);
  d.near("D1", "lambda = 0.29, beta = 0.5: alpha <= 0.9863", limit(0.5, 0.29), 0.9863, 5e-5);
  d.equal(
      "D1",
      "beta = 1, lambda = 3/4: alpha G = 1 at alpha = 4/5, so the pair above is the worst case",
      T(T(16) / 25 * G2(1, T(3) / 4)), T(1));

  // ## 5. On average it is harmless
  //
  // For independent isotropic q and k, E |s'|^2 = |s|^2 (1 - (2 beta - beta^2
  // (1 + lambda^2)) / d). Only second moments enter, so the signed coordinate axes give the exact
  // mean:

  const Vec<T> s = d.vector(3);
  const T beta = d.fraction(), l = d.fraction();
  T mean(0);
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) {
      Vec<T> ki = Vec<T>::Zero(3), qj = Vec<T>::Zero(3);
      ki[i / 2] = i % 2 ? 1 : -1, qj[j / 2] = j % 2 ? 1 : -1;
      const Vec<T> next = s - beta * s.dot(Vec<T>(ki + l * qj)) * ki;
      mean += next.dot(next) / 36;
    }
  d.equal("D1", "E |s'|^2 = |s|^2 (1 - (2 beta - beta^2 (1 + lambda^2)) / d)", mean,
          T(s.dot(s) * (1 - (2 * beta - beta * beta * (1 + l * l)) / 3)));
  if constexpr (ordered<T>)
    d.less("D1", "beta = 1.9, lambda = 0.9 grows even on average: beta (1 + lambda^2) > 2", T(2),
           T(T(19) / 10 * (1 + T(81) / 100)));

  // ## 6. Geometry
  //
  // beta = 1 / a makes A a projector, but an oblique one: its complement has norm |x| |k| / a,
  // which is 1 / sqrt(1 - lambda^2) in the worst case.

  const Vec<T> ku = d.unit(3), qu = d.unit(3), xu = ku + l * qu;
  const Mat<T> P = Mat<T>::Identity(3, 3) - (1 / ku.dot(xu)) * xu * ku.transpose();
  d.equal("D1", "beta = 1 / a: P^2 = P", P * P, P);
  d.differs("D1", "for lambda > 0 it is not orthogonal: P^T differs from P", P.transpose(), P);
  const T a = ku.dot(xu), apart = ku.dot(qu) + l;
  d.equal(
      "D1",
      "1 / (1 - lambda^2) - (|x| |k| / a)^2 = (lambda (k . q + lambda) / a)^2 / (1 - lambda^2)",
      T(1 / (1 - l * l) - xu.dot(xu) / (a * a)),
      T(l * l * apart * apart / (a * a * (1 - l * l))));
  // Why: a square over a positive number, so the norm is at most 1 / sqrt(1 - lambda^2), attained
  // at k . q = -lambda.
}

template void exploding_state(Derivation<Rational>&);
template void exploding_state(Derivation<Generic>&);

}  // namespace delta
