// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Laws that need no reference
//
// A second implementation can share a mistake with the first. A law cannot: it compares a
// function with itself, at inputs whose outputs are related. These are the laws of the gated
// delta rule with a query in the read, and a kernel that breaks one is wrong whatever it was
// compared with.

template <Ring T> struct Sequence {
  Mat<T> Q, K, V;              // [L x d_k], [L x d_k], [L x d_v]
  Vec<T> alpha, beta, lambda;  // [L]
};

// The rule, from a state, over the tokens begin .. end - 1. Row t of O is o_t.
template <Ring T> Mat<T> run(Mat<T>& S, const Sequence<T>& s, Index begin, Index end) {
  Mat<T> O(end - begin, S.rows());
  for (Index t = begin; t < end; ++t) {
    const Vec<T> k = s.K.row(t).transpose(), q = s.Q.row(t).transpose(),
                 v = s.V.row(t).transpose();
    S *= s.alpha[t];
    S += s.beta[t] * (v - S * Vec<T>(k + s.lambda[t] * q)) * k.transpose();
    O.row(t - begin) = S * q;
  }
  return O;
}

template <Ring T> void laws(Derivation<T>& d) {
  const Index L = d.size("L", 4, 16), d_k = d.size("d_k", 3, 12), d_v = d.size("d_v", 2, 8);
  const Sequence<T> s{d.matrix(L, d_k), d.matrix(L, d_k), d.matrix(L, d_v),
                      d.fractions(L),   d.fractions(L),   d.fractions(L)};
  const Mat<T> S0 = d.matrix(d_v, d_k);
  const auto from = [&](const Mat<T>& start, const Sequence<T>& x) {
    Mat<T> S = start;
    run<T>(S, x, 0, L);
    return S;
  };
  Mat<T> S = S0;
  const Mat<T> O = run<T>(S, s, 0, L);
  d.show("S_0", S0, "O", O, "S_L", S);

  // ## 1. Splitting
  //
  // Stopped anywhere and resumed with the state that was returned, the run is the same run.

  for (Index split = 0; split <= L; split += std::max<Index>(1, L / 4)) {
    Mat<T> part = S0;
    Mat<T> both(L, d_v);
    both.topRows(split) = run<T>(part, s, 0, split);
    both.bottomRows(L - split) = run<T>(part, s, split, L);
    d.equal("F65", "a split run returns the same outputs", both, O);
    d.equal("D10", "split points: the same final state", part, S);
  }
  Mat<T> fresh = Mat<T>::Zero(d_v, d_k);
  const Mat<T> last_only = run<T>(fresh, s, L - 1, L);
  d.differs("F65", "the last token without the carried state has lost its history", last_only,
            O.bottomRows(1));

  // Between requests the state must be reset: what remains of one leaks into the next.

  Mat<T> leaked = S, clean = Mat<T>::Zero(d_v, d_k);
  d.differs("F65", "the next request, started from the last one's state, gives other outputs",
            run<T>(leaked, s, 0, L), run<T>(clean, s, 0, L));

  // ## 2. Linearity
  //
  // S_L is affine in S_0 and linear in the values together with S_0.

  const Mat<T> D1 = d.matrix(d_v, d_k), zero = Mat<T>::Zero(d_v, d_k);
  d.equal("D10", "S(S_0 + D) - S(S_0) = S(D) - S(0)", from(S0 + D1, s) - S,
          from(D1, s) - from(zero, s));
  Sequence<T> silent = s;
  silent.V.setZero();
  Mat<T> P = Mat<T>::Identity(d_k, d_k);
  for (Index t = 0; t < L; ++t) {
    const Vec<T> x = s.K.row(t).transpose() + s.lambda[t] * s.Q.row(t).transpose();
    P = s.alpha[t] * (P * Mat<T>(Mat<T>::Identity(d_k, d_k) - s.beta[t] * x * s.K.row(t)));
  }
  d.equal("D10", "S(S_0) - S(0) = S_0 P", S - from(zero, s), S0 * P);
  Sequence<T> scaled = s;
  scaled.V = T(3) * s.V;
  d.equal("D10", "three times the values and S_0: three times the state", from(T(3) * S0, scaled),
          T(3) * S);
  d.equal("D10", "the values' part and the state's part add up", from(zero, s) + from(S0, silent),
          S);

  // ## 3. Rows are independent
  //
  // A value channel may be left out, and the others do not notice.

  Sequence<T> fewer = s;
  fewer.V = s.V.leftCols(1);
  d.equal("D10", "one value channel alone gives its row", from(S0.topRows(1), fewer),
          S.topRows(1));

  // ## 4. Neutral values

  Sequence<T> plain = s;
  plain.lambda.setZero();
  Mat<T> gated = S0, ungated = S0;
  for (Index t = 0; t < L; ++t) {
    const Vec<T> k = s.K.row(t).transpose(), v = s.V.row(t).transpose();
    gated = s.alpha[t] * gated;
    gated += s.beta[t] * (v - gated * k) * k.transpose();
    ungated += s.beta[t] * (v - ungated * k) * k.transpose();
  }
  d.equal("D10", "lambda = 0 is the gated delta rule", from(S0, plain), gated);
  plain.alpha.setOnes();
  d.equal("D10", "and with alpha = 1 (g = 0) the delta rule", from(S0, plain), ungated);
  Mat<T> by_channel = S0;
  for (Index t = 0; t < L; ++t) {
    const Vec<T> k = s.K.row(t).transpose(), x = k + s.lambda[t] * s.Q.row(t).transpose(),
                 v = s.V.row(t).transpose();
    by_channel = by_channel * Vec<T>(Vec<T>::Constant(d_k, s.alpha[t])).asDiagonal();
    by_channel += s.beta[t] * (v - by_channel * x) * k.transpose();
  }
  d.equal("D10", "one decay per channel, all equal, is one decay", by_channel, S);

  // ## 5. Symmetries
  //
  // Rotating the key space rotates the state. Keys, queries and values times c, with beta / c^2,
  // leave the state as it is; here the other way round, c^2 beta without the factors, so that
  // nothing is divided.

  const Vec<T> w = d.vector(d_k);
  const Mat<T> I = Mat<T>::Identity(d_k, d_k);
  const Mat<T> R = I - (T(2) / w.dot(w)) * w * w.transpose();  // orthogonal
  Sequence<T> turned = s;
  turned.K = s.K * R.transpose(), turned.Q = s.Q * R.transpose();
  Mat<T> straight = S0, rotated = S0 * R.transpose();
  run<T>(straight, s, 0, 3);
  run<T>(rotated, turned, 0, 3);
  d.equal("D10", "S_0 R^T, R k, R q: the state is S R^T, after three tokens", rotated,
          straight * R.transpose());

  const T c = d.integer();
  Sequence<T> longer = s, stronger = s;
  longer.K = c * s.K, longer.Q = c * s.Q, longer.V = c * s.V, stronger.beta = c * c * s.beta;
  d.equal("D10", "c k, c q (so c x), c v and beta: the same state as with c^2 beta",
          from(S0, longer), from(S0, stronger));

  // A decay per channel is tied to the axes, and the rotation shows it:

  const Vec<T> channels = d.fractions(d_k);
  d.differs("D10", "with a decay per channel the rotation law fails, as it should",
            Mat<T>(S0 * R.transpose()) * Mat<T>(channels.asDiagonal()),
            S0 * Mat<T>(channels.asDiagonal()) * R.transpose());

  // ## 6. Two histories, one state

  Mat<T> one = S0, two = S0;
  const Vec<T> k = d.unit(d_k), v1 = d.vector(d_v), v2 = d.vector(d_v);
  one += (v1 - one * k) * k.transpose(), one += (v2 - one * k) * k.transpose();
  two += (v2 - two * k) * k.transpose();
  d.equal("D10", "beta = 1, unit key: what was overwritten cannot be told", one, two);

  // ## 7. Chunks
  //
  // The chunk length is a choice of the schedule and must not show. The same rule by chunks of 1,
  // 2, 3 and L tokens:

  for (Index C : {Index(1), Index(2), Index(3), L}) {
    Mat<T> state = S0;
    for (Index begin = 0; begin < L; begin += C) {
      const Index n = std::min(C, L - begin);
      const Mat<T> q = s.Q.middleRows(begin, n), kk = s.K.middleRows(begin, n);
      const Mat<T> x = kk + Vec<T>(s.lambda.segment(begin, n)).asDiagonal() * q;
      const Mat<T> B = Vec<T>(s.beta.segment(begin, n)).asDiagonal();
      Vec<T> gamma = s.alpha.segment(begin, n);
      Mat<T> H = Mat<T>::Identity(n, n);
      for (Index i = 1; i < n; ++i) {
        H.row(i).head(i) = gamma[i] * H.row(i - 1).head(i);
        gamma[i] *= gamma[i - 1];
      }
      const Mat<T> L_g = strictly_lower<T>(B * H.cwiseProduct(x * kk.transpose()));
      const Mat<T> Z = solve_unit_lower<T>(
          L_g,
          B * Mat<T>(s.V.middleRows(begin, n) - gamma.asDiagonal() * (x * state.transpose())));
      state = gamma[n - 1] * state + Z.transpose() * Mat<T>(H.row(n - 1).asDiagonal() * kk);
    }
    d.equal("D10", "chunk-size invariance, C = 1, 2, 3, L", state, S);
  }
}

template void laws(Derivation<Rational>&);
template void laws(Derivation<Generic>&);

}  // namespace delta
