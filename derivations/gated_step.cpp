// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # The gated delta rule: decay first, then correct
//
//     S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T.
//
// Decay alone weakens everything alike. The delta rule alone changes one association and never
// forgets the rest. Together: forget the whole a little, then correct what the decayed memory
// predicts.

template <Ring T> void gated_step(Derivation<T>& d) {
  const Index d_k = d.size("d_k", 3, 48), d_v = d.size("d_v", 2, 32);

  const Mat<T> S = d.matrix(d_v, d_k);                // [d_v x d_k]  S_{t-1}
  const Vec<T> k = d.vector(d_k), v = d.vector(d_v);  // [d_k], [d_v]
  const T alpha = d.fraction(), beta = d.fraction();
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  d.show("S", S, "k", k, "v", v, "alpha", alpha, "beta", beta);

  // ## 1. One step, in the order in which it happens

  const auto step = [&](const T& a, const T& b) {
    const Mat<T> prior = a * S;                        // forget
    const Vec<T> error = v - prior * k;                // predict from the decayed memory
    return Mat<T>(prior + b * error * k.transpose());  // correct
  };
  const Mat<T> next = step(alpha, beta);  // [d_v x d_k]  S_t
  d.show("S_t", next);

  d.equal("F48", "S_t = S alpha (I - beta k k^T) + beta v k^T",
          S * Mat<T>(alpha * (I - beta * k * k.transpose())) + beta * v * k.transpose(), next);
  d.equal("F48", "S_t = (alpha S)(I - beta k k^T) + beta v k^T",
          (alpha * S) * Mat<T>(I - beta * k * k.transpose()) + beta * v * k.transpose(), next);
  // Why: a number commutes with a matrix, so it does not matter which factor alpha is written at.
  // It does matter whether the prediction sees it:

  const Mat<T> late = alpha * S + beta * (v - S * k) * k.transpose();
  d.differs("F49", "a prediction read before the decay gives another state", late, next);
  d.equal("F49", "the gap is beta (1 - alpha) S k k^T", next - late,
          (beta * (T(1) - alpha)) * (S * k) * k.transpose());
  const Mat<T> write_decayed = alpha * (S + beta * (v - S * k) * k.transpose());
  d.differs("F49", "decaying after the write would decay the new value too", write_decayed, next);

  // ## 2. The extreme gates

  d.equal("F50", "alpha = 0 leaves the write, beta v k^T", step(T(0), beta),
          beta * v * k.transpose());
  d.equal("F50", "beta = 0 leaves alpha S", step(alpha, T(0)), alpha * S);
  d.differs("F50", "beta = 0 does not silence the output: alpha S q is not 0", alpha * (S * k),
            Vec<T>::Zero(d_v));
  d.equal("F50", "v in place of v - prediction is gated linear attention",
          alpha * S + beta * v * k.transpose(), next + beta * (alpha * (S * k)) * k.transpose());
  d.equal("F51", "alpha = 1 is the delta rule", step(T(1), beta),
          S + beta * (v - S * k) * k.transpose());
  d.equal("F51", "alpha = 0 clears: what S was has no influence", step(T(0), beta),
          T(0) * S + beta * v * k.transpose());

  // ## 3. Clearing m stale associations
  //
  // Write m values under orthonormal keys. To forget them all the delta rule must be told m
  // times, one key at a time; a decay of zero does it at once, but cannot spare any.

  const Index m = std::min<Index>(d_k, 6);  // associations, in as many channels
  const Vec<T> w = d.vector(m);
  const Mat<T> keys = Mat<T>::Identity(m, m) -
                      (T(2) / w.dot(w)) * w * w.transpose();  // rows: orthonormal, rational
  const Mat<T> values = d.matrix(m, d_v);
  Mat<T> full = Mat<T>::Zero(d_v, m);
  for (Index i = 0; i < m; ++i) full += values.row(i).transpose() * keys.row(i);

  Mat<T> erased = full;
  Index steps = 0;
  for (Index i = 0; i < m; ++i) {
    d.differs("F70", "before its last delta step the memory is not empty", erased,
              Mat<T>::Zero(d_v, m));
    const Vec<T> key = keys.row(i).transpose();
    erased -= (erased * key) * key.transpose();  // beta = 1, v = 0
    ++steps;
  }
  d.equal("F70", "m delta steps with v = 0 clear m orthonormal keys", erased,
          Mat<T>::Zero(d_v, m));
  d.holds("F70", "each of the m steps removes one key", steps == m);
  d.equal("F70", "one step with alpha = 0 clears all", T(0) * full, Mat<T>::Zero(d_v, m));

  // Erasing with the gate open is what pure decay cannot do: one key goes, the others stay whole.

  const Vec<T> first = keys.row(0).transpose();
  const Mat<T> selective = full - (full * first) * first.transpose();
  for (Index i = 1; i < m; ++i)
    d.equal("F70", "erasing one key leaves the other values as they were",
            selective * Vec<T>(keys.row(i).transpose()), values.row(i).transpose());
}

template void gated_step(Derivation<Rational>&);
template void gated_step(Derivation<Generic>&);

}  // namespace delta
