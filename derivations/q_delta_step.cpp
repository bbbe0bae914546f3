// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Q-Delta: three roles for two vectors
//
// The gated delta rule predicts with the key, writes along the key and outputs with the query.
// Q-Delta lets the query take part in the prediction: x = k + lambda q reads, k writes, q
// outputs.
//
//     S_t = alpha S_{t-1} (I - beta x k^T) + beta v k^T,    o_t = S_t q.

template <Field T> void q_delta_step(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48), d_v = d.size("d_v", 2, 32);

  const Mat<T> S = d.matrix(d_v, d_k);  // [d_v x d_k]
  const Vec<T> k = d.vector(d_k), q = d.vector(d_k), v = d.vector(d_v);
  const T alpha = d.fraction(), beta = d.fraction(), lambda = d.fraction();
  const Vec<T> x = k + lambda * q;  // [d_k]
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  d.show("S", S, "k", k, "q", q, "v", v, "alpha", alpha, "beta", beta, "lambda", lambda, "x", x);

  // ## 1. The step, without decay and with it

  const Mat<T> plain = S + beta * (v - S * k - lambda * (S * q)) * k.transpose();
  d.equal("F71", "S_t = S + beta (v - S k - lambda S q) k^T = S (I - beta x k^T) + beta v k^T",
          S * Mat<T>(I - beta * x * k.transpose()) + beta * v * k.transpose(), plain);

  const Mat<T> prior = alpha * S;                            // forget
  const Vec<T> error = v - prior * x;                        // predict with x
  const Mat<T> next = prior + beta * error * k.transpose();  // write along k
  const Vec<T> o = next * q;                                 // output with q
  d.show("S_t", next, "o_t", o);
  d.equal("F72", "S_t = alpha S (I - beta x k^T) + beta v k^T",
          alpha * (S * Mat<T>(I - beta * x * k.transpose())) + beta * v * k.transpose(), next);

  // Both terms of the prediction are read from the decayed state:

  const Mat<T> late = prior + beta * (v - prior * k - lambda * (S * q)) * k.transpose();
  d.differs("F72", "with the query term read before the decay the state is another", late, next);

  // The query of a token is known when the token is processed, so nothing looks ahead. Two
  // sequences that differ in the second token only have the same first output:

  const Vec<T> k2 = d.vector(d_k), q2 = d.vector(d_k), v2 = d.vector(d_v), k3 = d.vector(d_k),
               q3 = d.vector(d_k);
  const auto both = [&](const Vec<T>& key, const Vec<T>& query) {  // o_1 and o_2 side by side
    Mat<T> M = S, outputs(d_v, 2);
    const Vec<T> ks[] = {k, key}, qs[] = {q, query}, vs[] = {v, v2};
    for (Index t = 0; t < 2; ++t) {
      M *= alpha;
      M += beta * (vs[t] - M * Vec<T>(ks[t] + lambda * qs[t])) * ks[t].transpose();
      outputs.col(t) = M * qs[t];
    }
    return outputs;
  };
  const Mat<T> one = both(k2, q2), other = both(k3, q3);
  d.equal("F72", "causality: the second token never moves the first output", one.col(0),
          other.col(0));
  d.differs("F72", "while the second output does depend on it", one.col(1), other.col(1));

  // ## 2. What it contains

  d.equal("F73", "lambda = 0 is the gated delta rule",
          prior + beta * (v - prior * k) * k.transpose(),
          next + (beta * lambda) * (prior * q) * k.transpose());
  const auto step = [&](const T& a, const T& l) {
    const Mat<T> M = a * S;
    return Mat<T>(M + beta * (v - M * Vec<T>(k + l * q)) * k.transpose());
  };
  d.equal("F73", "alpha = 1 and lambda = 0: the delta rule", step(T(1), T(0)),
          S + beta * (v - S * k) * k.transpose());
  d.differs("F73", "lambda matters", step(alpha, lambda), step(alpha, T(0)));

  // ## 3. What it is not
  //
  // The residual v - S k - lambda S q is not a mean of the two errors v - S k and v - S q: the
  // weights would have to sum to one, and v would be counted once for each.

  const Vec<T> mean = ((v - prior * k) + lambda * (v - prior * q)) / (T(1) + lambda);
  d.differs("F74", "not the mean ((v - S k) + lambda (v - S q)) / (1 + lambda)", mean, error);
  d.differs("F74", "nor that without the division: v would be scaled by 1 + lambda",
            (T(1) + lambda) * mean, error);

  // And it is no gradient step. The gradient of 1/2 |v - S x|^2 is -(v - S x) x^T: it writes
  // along what it read with. Q-Delta reads with x and writes along k.

  const Mat<T> E = d.matrix(d_v, d_k);  // any direction
  const auto loss = [&](const Mat<T>& M) {
    const Vec<T> r = v - M * x;
    return T(r.dot(r) / T(2));
  };
  const Vec<T> Ex = E * x;
  d.equal("F79", "the gradient of 1/2 |v - S x|^2 at alpha S is -(v - alpha S x) x^T",
          T(loss(prior + E) - loss(prior)),
          T(Mat<T>(-error * x.transpose()).cwiseProduct(E).sum() + Ex.dot(Ex) / T(2)));
  d.differs("F79", "a gradient step writes along x and is not Q-Delta",
            prior + beta * error * x.transpose(), next);

  // ## 4. What the token's own output sees

  d.equal("F75", "o_t = alpha S q + beta (v - alpha S x)(k . q)",
          prior * q + (beta * k.dot(q)) * error, o);
  const Vec<T> blind = q - (q.dot(k) / k.dot(k)) * k;  // a query orthogonal to the key
  const Mat<T> M = prior + beta * (v - prior * Vec<T>(k + lambda * blind)) * k.transpose();
  d.equal("F75", "k . q = 0: the output does not see the write", M * blind, prior * blind);
  d.differs("F75", "but the state has changed, and a later query can see it", M * q2, prior * q2);
  // Why: S_t q = alpha S q + beta (v - alpha S x)(k^T q), and the last factor is a number.
}

template void q_delta_step(Derivation<Rational>&);
template void q_delta_step(Derivation<Generic>&);

}  // namespace delta
