// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/micro_step.hpp"

namespace delta {

/// One micro-step, as it is defined: forget, predict, correct.
/// \param S  state [d_v x d_k], edited in place   \return the error before the correction, e~ = v - S x  [d_v]
/// \formula{F72}
template <Ring T> Vec<T> apply(Mat<T>& S, const MicroStep<T>& s) {
  Vec<T> prediction;
  if (s.pre_decay) prediction = S * s.x;  // [d_v]
  s.d.decay_columns(S);
  if (!s.pre_decay) prediction = S * s.x;  // [d_v]
  const Vec<T> e = s.v - prediction;       // [d_v]
  S += (s.beta * e) * s.y.transpose();     // [d_v x d_k]
  return e;
}

/// What the recurrent form shows of one micro-step: e~ before the write, e after it, and the state it leaves.
template <Ring T> struct MicroStepTrace {
  Index step;          ///< index of the micro-step; it belongs to token step / m
  Vec<T> e_prior;      ///< [d_v] e~ = v - S' x
  Vec<T> e_posterior;  ///< [d_v] e = v - S x, the same probe on the corrected state
  Mat<T> S;            ///< [d_v x d_k] the state after the micro-step
};

/// The recurrence, token by token: the definition that every other form is held equal to.
/// \formula{F20} \formula{F48} \formula{F72}  \needs{+ - *}
template <Ring T> Output<T> recurrent(const Stream<T>& stream, const Watch<MicroStepTrace<T>>& watch = nullptr) {
  Output<T> out{Mat<T>(stream.tokens(), stream.d_v()), stream.S0};
  for (Index t = 0; t < stream.tokens(); ++t) {
    for (Index i = stream.m * t; i < stream.m * (t + 1); ++i) {
      const Vec<T> e = apply(out.S, stream.steps[i]);
      if (watch) watch({i, e, Vec<T>(stream.steps[i].v - out.S * stream.steps[i].x), out.S});
    }
    out.O.row(t) = out.S * stream.Q.row(t).transpose();
  }
  return out;
}

}  // namespace delta
