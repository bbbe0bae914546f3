// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <vector>

#include "../forms/recurrent.hpp"

namespace delta {

/// The gradient of a scalar loss with respect to a stream, given its gradient with respect to the output. An adjoint
/// has the shape of what it is the adjoint of, and so its type.
///   steps[i].{d, x, y, v, beta}  of micro-step i     Q  of the read-out     S0  of the initial state
template <Ring T> using StreamAdjoint = Stream<T>;

/// The adjoint of one micro-step. With G the gradient with respect to the state after it, S' = S diag(d) and
/// e = v - S' x, the chain rule read backwards gives
/// \f[ \bar e = \beta\, G y,\quad \bar\beta = e^\top G y,\quad \bar y = \beta\, G^\top e,\quad \bar v = \bar e,\quad
///     \bar x = -S'^\top \bar e,\quad \bar S' = G - \bar e x^\top,\quad
///     \bar d_j = \sum_i S_{ij} \bar S'_{ij},\quad \bar S = \bar S' \mathrm{diag}(d) \f]
/// and with `pre_decay`, where e = v - S x reads the state before its decay, x and e act on S instead of S'.
/// \param S  [d_v x d_k] the state before the micro-step   \param G  [d_v x d_k] in: the gradient after, out: before it
/// \return the gradient with respect to d, x, y, v, beta
/// \needs{+ - *}
template <Ring T> MicroStep<T> adjoint(const MicroStep<T>& s, const Mat<T>& S, Mat<T>& G) {
  Mat<T> decayed = S;  // [d_v x d_k]  S'
  s.d.decay_columns(decayed);
  const Mat<T>& seen = s.pre_decay ? S : decayed;  // what the prediction reads

  const Vec<T> e = s.v - seen * s.x;  // [d_v]
  const Vec<T> Gy = G * s.y;          // [d_v]
  MicroStep<T> g{.x = {}, .y = s.beta * (G.transpose() * e), .v = s.beta * Gy, .beta = (e.transpose() * Gy).value()};
  g.x = -(seen.transpose() * g.v);  // [d_k]

  const Mat<T> through_x = g.v * s.x.transpose();  // [d_v x d_k]  what the prediction takes off the gradient
  if (!s.pre_decay) G -= through_x;
  const Vec<T> per_channel = S.cwiseProduct(G).colwise().sum().transpose();  // [d_k]
  if (!s.d.none()) g.d = s.d.scalar() ? Decay<T>(per_channel.sum()) : Decay<T>(per_channel);
  s.d.decay_columns(G);
  if (s.pre_decay) G -= through_x;
  return g;
}

/// The adjoint of the recurrence: the tokens in reverse order. The state is kept at every C-th token, and between two
/// of these it is computed again; nothing is divided by a decay, so alpha = 0 is no special case.
/// \param dO  [T x d_v] gradient with respect to the outputs
/// \param dS  [d_v x d_k] gradient with respect to the final state
/// \param C   tokens between kept states, at least 1: about T / C + m C states are held at once
/// \needs{+ - *}
template <Ring T>
StreamAdjoint<T> recurrent_adjoint(const Stream<T>& stream, const Mat<T>& dO, const Mat<T>& dS, Index C = 64) {
  const Index m = stream.m, tokens = stream.tokens();
  StreamAdjoint<T> g{.steps = Steps<T>(stream.steps.size()), .Q = Mat<T>(tokens, stream.d_k()), .S0 = dS, .m = m};
  std::vector<Mat<T>> kept;
  Mat<T> S = stream.S0;
  for (Index i = 0; i < m * tokens; ++i) {
    if (i % (m * C) == 0) kept.push_back(S);
    apply(S, stream.steps[i]);
  }
  for (Index begin = (tokens - 1) / C * C; begin >= 0 && tokens > 0; begin -= C, kept.pop_back()) {
    const Index end = std::min(begin + C, tokens);
    std::vector<Mat<T>> states{kept.back()};  // the state before and after each micro-step of these tokens
    for (Index i = m * begin; i < m * end; ++i) {
      states.push_back(states.back());
      apply(states.back(), stream.steps[i]);
    }
    for (Index t = end - 1; t >= begin; --t) {
      g.Q.row(t) = dO.row(t) * states.back();           // [1 x d_k]
      g.S0 += dO.row(t).transpose() * stream.Q.row(t);  // [d_v x d_k]  o = S q
      for (Index i = m * (t + 1) - 1; i >= m * t; --i) {
        states.pop_back();
        g.steps[i] = adjoint(stream.steps[i], states.back(), g.S0);
      }
    }
  }
  return g;
}

}  // namespace delta
