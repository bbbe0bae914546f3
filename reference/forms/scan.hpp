// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "recurrent.hpp"

namespace delta {

/// An edit of the memory that is affine in it: S -> S A + U. Every token is one, and so is every run of tokens.
template <Ring T> struct Affine {
  Mat<T> A;  ///< [d_k x d_k] transition
  Mat<T> U;  ///< [d_v x d_k] write

  /// First this edit, then the later one: the composition is associative and not commutative.
  /// \f[ (A_1, U_1) \text{ then } (A_2, U_2) = (A_1 A_2,\; U_1 A_2 + U_2) \f]
  Affine then(const Affine& later) const { return {A * later.A, U * later.A + later.U}; }

  /// First this edit, then a micro-step, whose transition diag(d) - p y^T is of rank one and is never formed.
  void append(const MicroStep<T>& s) {
    const Vec<T> A_p = A * s.p(), e = s.u() - U * s.p();  // [d_k], [d_v]
    s.d.decay_columns(A);
    s.d.decay_columns(U);
    A -= A_p * s.y.transpose();
    U += e * s.y.transpose();
  }
};

/// Replaces x_i by x_1 then .. then x_i, in a tree: neighbours are joined, the pairs are scanned, and the odd places
/// are filled in. About 2 n compositions, 2 log2(n) of them one after the other. The order within never changes.
/// \formula{F59}
template <Ring T> void inclusive_scan(std::vector<Affine<T>>& x) {
  if (x.size() < 2) return;
  std::vector<Affine<T>> pairs;
  for (std::size_t i = 0; i + 1 < x.size(); i += 2) pairs.push_back(x[i].then(x[i + 1]));
  inclusive_scan(pairs);
  for (std::size_t i = 1; i < x.size(); ++i) x[i] = i % 2 ? pairs[i / 2] : pairs[i / 2 - 1].then(x[i]);
}

/// The associative scan: the prefixes of the sequence as affine edits, from leaves of C tokens, joined in a tree.
/// \f[ S_t = S_0 A_{1..t} + U_{1..t}, \qquad A_{1..t} = A_1 A_2 \cdots A_t, \qquad
///     U_{1..t} = \sum_{i \le t} U_i A_{i+1} \cdots A_t \f]
/// The products run in ascending order. No leaf waits for the one before it: each starts from its own state and follows
/// its tokens by the recurrence. Runs of tokens may merge, the order inside stays; so any C gives the same.
/// \param C  tokens per leaf, at least 1: T / C matrices d_k x d_k are held and multiplied
/// \param watch  is shown the prefix up to the end of each leaf, in order
/// \formula{F59} \formula{F60}  \needs{+ - *}
template <Ring T> Output<T> scan(const Stream<T>& stream, Index C = 1, const Watch<Affine<T>>& watch = nullptr) {
  const Index d_k = stream.d_k(), d_v = stream.d_v(), m = stream.m, tokens = stream.tokens();
  std::vector<Affine<T>> prefix((tokens + C - 1) / C, {Mat<T>::Identity(d_k, d_k), Mat<T>::Zero(d_v, d_k)});
  for (Index i = 0; i < m * tokens; ++i) prefix[i / (m * C)].append(stream.steps[i]);
  inclusive_scan(prefix);

  Output<T> out{Mat<T>(tokens, d_v), stream.S0};
  for (Index t = 0; t < tokens; ++t) {
    if (t % C == 0 && t > 0) {
      const Affine<T>& before = prefix[t / C - 1];
      out.S = stream.S0 * before.A + before.U;  // [d_v x d_k]  the state at the leaf's start
    }
    for (Index i = m * t; i < m * (t + 1); ++i) apply(out.S, stream.steps[i]);
    out.O.row(t) = out.S * stream.Q.row(t).transpose();  // [d_v]
  }
  if (tokens > 0) out.S = stream.S0 * prefix.back().A + prefix.back().U;
  if (watch)
    for (const Affine<T>& a : prefix) watch(a);
  return out;
}

}  // namespace delta
