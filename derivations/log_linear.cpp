// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

namespace delta {

// # Log-linear attention: a state for each power of two
//
// One state mixes all of the past. Log-linear attention keeps about log2 t of them, each the sum
// over a bucket of tokens: the newest token alone, then buckets of 1, 2, 4, ... tokens backwards,
// as the binary digits of t say. Each bucket is read with its own weight lambda.

template <Ring T> void log_linear(Derivation<T>& d) {
  const Index L = d.size("L", 8, 32), d_k = d.size("d_k", 2, 16), d_v = d.size("d_v", 2, 12);

  const Mat<T> Q = d.matrix(L, d_k), K = d.matrix(L, d_k);  // [L x d_k]
  const Mat<T> V = d.matrix(L, d_v);                        // [L x d_v]
  const Vec<T> alpha = d.fractions(L);                      // [L]
  Index levels = 1;
  while ((Index(1) << (levels - 1)) < L) ++levels;
  const Mat<T> lambda = d.matrix(L, levels);  // [L x levels]  row t weighs the buckets of token t

  // ## 1. The buckets
  //
  // Token t belongs to itself: level 0. The tokens 0 .. t-1 are cut at the binary digits of t, the
  // largest power first: t = 6 = 4 + 2 has the buckets {0 .. 3} of level 3 and {4, 5} of level 2.
  // level(t, i) is one more than the place of the highest digit in which t and i differ.

  const auto level = [](Index t, Index i) {
    Index l = 0;
    while (t != i) t /= 2, i /= 2, ++l;
    return l;
  };
  Mat<T> members = Mat<T>::Zero(L, levels);  // how many tokens each bucket of token t holds
  for (Index t = 0; t < L; ++t)
    for (Index i = 0; i <= t; ++i) members(t, level(t, i)) += T(1);
  Mat<T> digits = Mat<T>::Zero(L, levels);
  for (Index t = 0; t < L; ++t) {
    digits(t, 0) = T(1);
    for (Index l = 1; l < levels; ++l)
      if (t >> (l - 1) & 1) digits(t, l) = T(int(Index(1) << (l - 1)));
  }
  d.show("tokens in each bucket", members);
  d.equal("C-log-linear", "bucket l holds 2^(l-1) tokens if digit l-1 of t is one, else none",
          members, digits);
  // Why they partition 0 .. t: the numbers below t that share all digits of t above place l-1,
  // where t has a one and they have a zero, are 2^(l-1); every i < t is of exactly one such kind.

  // ## 2. By states
  //
  // S[l] is the decayed sum over bucket l. From t - 1 to t the ones at the end of t - 1 carry: with
  // digit l-1 the lowest one of t, the buckets of the levels 0 .. l-1 merge into the empty level l.

  std::vector<Mat<T>> S(levels, Mat<T>::Zero(d_v, d_k));  // [d_v x d_k] each
  Mat<T> O = Mat<T>::Zero(L, d_v);                        // [L x d_v]
  for (Index t = 0; t < L; ++t) {
    if (t > 0) {
      Index to = 1;
      while ((t >> (to - 1) & 1) == 0) ++to;
      for (Index l = 0; l < to; ++l) {
        S[to] += S[l];
        S[l].setZero();
      }
    }
    for (Mat<T>& bucket : S) bucket *= alpha[t];
    S[0] += V.row(t).transpose() * K.row(t);
    for (Index l = 0; l < levels; ++l)
      O.row(t) += lambda(t, l) * (S[l] * Vec<T>(Q.row(t).transpose())).transpose();
  }

  // ## 3. By a mask
  //
  // O = (Q K^T . H . Lam) V with Lam_ti = lambda_t,level(t, i): one more mask, nothing else.

  Mat<T> H = Mat<T>::Identity(L, L), Lam = Mat<T>::Zero(L, L);  // [L x L]
  for (Index t = 1; t < L; ++t) H.row(t).head(t) = alpha[t] * H.row(t - 1).head(t);
  for (Index t = 0; t < L; ++t)
    for (Index i = 0; i <= t; ++i) Lam(t, i) = lambda(t, level(t, i));
  const Mat<T> scores = (Q * K.transpose()).cwiseProduct(H).cwiseProduct(Lam);  // [L x L]
  d.show("H", H, "Lam", Lam);
  d.equal("C-log-linear", "O = (Q K^T . H . Lam) V", scores * V, O);
  d.differs("C-log-linear", "without Lam it is attention with decay",
            Mat<T>((Q * K.transpose()).cwiseProduct(H)) * V, O);
  // Why: S[l] = sum over the bucket of (gamma_t / gamma_i) v_i k_i^T, and each i <= t is in one
  // bucket. For one state the weights would have to be the same for all levels.
}

template void log_linear(Derivation<Rational>&);
template void log_linear(Derivation<Generic>&);

}  // namespace delta
