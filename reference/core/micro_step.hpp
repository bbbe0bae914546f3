// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <type_traits>
#include <vector>

#include "linalg.hpp"

namespace delta {

/// The decay of one micro-step: nothing, one number, or one number per key channel.
template <Ring T> struct Decay {
  Vec<T> d;  ///< size 0: none; size 1: one number for the whole state; size d_k: one per key channel

  Decay() = default;
  Decay(const T& alpha) : d(Vec<T>::Constant(1, alpha)) {}
  Decay(Vec<T> per_channel) : d(std::move(per_channel)) {}

  bool none() const { return d.size() == 0; }
  bool scalar() const { return d.size() <= 1; }

  /// The decay of key channel j.
  T operator[](Index j) const { return none() ? T(1) : scalar() ? d[0] : d[j]; }

  /// M <- M diag(d), for any M with d_k columns: the state, or rows that live in key space.
  template <class Derived> void decay_columns(Eigen::MatrixBase<Derived>&& M) const { decay_columns(M); }
  template <class Derived> void decay_columns(Eigen::MatrixBase<Derived>& M) const {
    if (none()) return;
    if (scalar())
      M *= d[0];
    else
      M *= d.asDiagonal();
  }

  /// diag(d) x  [d_k]
  Vec<T> operator*(const Vec<T>& x) const {
    if (none()) return x;
    if (scalar()) return d[0] * x;
    return d.asDiagonal() * x;
  }
};

/// One edit of the memory: forget, predict, correct.
/// \f[ S \leftarrow S\,\mathrm{diag}(d), \qquad e = v - S x, \qquad S \leftarrow S + \beta\, e\, y^\top \f]
/// With `pre_decay` the prediction S x is read before the state is decayed.
/// Every rule is a list of these; every form consumes these and knows no rule.
template <Ring T> struct MicroStep {
  Decay<T> d;              ///< forget: the decay
  Vec<T> x;                ///< read:   [d_k] the key the prediction is read with
  Vec<T> y;                ///< write:  [d_k] the key the correction is written along
  Vec<T> v;                ///< target: [d_v]
  T beta = T(1);           ///< strength of the whole correction
  bool pre_decay = false;  ///< predict from the state before its decay

  /// p and u of the canonical step  z = u - S p,  S <- S diag(d) + z y^T,  S being the state before its decay.
  Vec<T> p() const { return pre_decay ? Vec<T>(beta * x) : Vec<T>(beta * (d * x)); }  // [d_k]
  Vec<T> u() const { return beta * v; }                                               // [d_v]
};

template <Ring T> using Steps = std::vector<MicroStep<T>>;

/// All that a form needs to know of one sequence of one head: its micro-steps, and what reads the state after each
/// token. Token t owns the micro-steps m t, ..., m t + m - 1 and is read out after the last of them.
template <Ring T> struct Stream {
  Steps<T> steps;  ///< m per token, in order
  Mat<T> Q;        ///< [T x d_k] row t reads o_t = S_t Q_t^T; the read-out scale is already in it
  Mat<T> S0;       ///< [d_v x d_k] the state before the first token
  Index m = 1;     ///< micro-steps per token

  Index tokens() const { return Q.rows(); }
  Index d_k() const { return S0.cols(); }
  Index d_v() const { return S0.rows(); }
};

/// What a form returns.
template <Ring T> struct Output {
  Mat<T> O;  ///< [T x d_v] row t is o_t
  Mat<T> S;  ///< [d_v x d_k] the state after the last token
};

/// Whoever wants to see the intermediates of a form: called with each as it is computed, in order. What it is shown
/// owns its matrices, so that keeping them is one line: \code
///   std::vector<Chunk<T>> chunks;
///   chunkwise(stream, C, [&](const Chunk<T>& c) { chunks.push_back(c); });
/// \endcode
template <class X> using Watch = std::function<void(const std::type_identity_t<X>&)>;

}  // namespace delta
