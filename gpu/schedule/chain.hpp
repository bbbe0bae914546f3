// SPDX-License-Identifier: Apache-2.0
// What a chain does with a chunk: three lines, each with d rows of S. For outputs these are value channels; the
// transfer of a segment walks the same lines with the d_k rows of I.
#pragma once
#include "gpu/schedule/producer.hpp"

namespace delta::gpu {

/// The errors of the chunk's tokens before they are written, e~_t = v_t - alpha_t S_{t-1} x_t:
/// \f[ E = T V - W \hat S^\top \f]
/// \param S  [d x d_k] at the chunk's start   \param V  [c x d], one column for each row of S   \return [c x d]
/// \formula{F84}
template <Ring T, class Rounding>
Mat<T> errors(const Mat<T>& S, const Prepared<T>& p, const Mat<T>& V, const Rounding& round) {
  return p.T * V - p.W * round.operand(S).transpose();
}

/// \f[ O = \mathrm{round}(D_f Q \hat S^\top + P \hat E) \f]
/// \return [c x d]   \formula{F84}
template <Ring T, class Rounding>
Mat<T> outputs(const Mat<T>& S, const Prepared<T>& p, const Mat<T>& E, const Rounding& round) {
  const Mat<T> from_state = p.output.asDiagonal() * Mat<T>(p.Q * round.operand(S).transpose());
  return round.operand(from_state + p.P * round.operand(E));
}

/// \f[ S' = \gamma_c S + \widehat{D_w E}^\top K \f]
/// S itself is never rounded. \return [d x d_k]   \formula{F84}
template <Ring T, class Rounding>
Mat<T> next_state(const Mat<T>& S, const Prepared<T>& p, const Mat<T>& E, const Rounding& round) {
  return p.gamma[p.gamma.size() - 1] * S + round.operand(p.write.asDiagonal() * E).transpose() * p.K;
}

}  // namespace delta::gpu
