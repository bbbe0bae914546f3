// SPDX-License-Identifier: Apache-2.0
// What a chain does with a chunk: three lines, each with d rows of S. For outputs these are value channels; the
// transfer of a segment walks the same lines with the d_k rows of I.
#pragma once
#include "gpu/schedule/producer.hpp"

namespace delta::gpu {

/// The errors of the chunk's tokens before they are written, e~_t = v_t - alpha_t S_{t-1} x_t:
/// \f[ E = T V - W \hat S^\top, \f]
/// or, solved on the chain,
/// \f[ (I + L)\,E = R, \quad R = V - D_a X \hat S^\top, \quad
///     X \hat S^\top = K \hat S^\top + \mathrm{diag}(\lambda)\,Q \hat S^\top, \f]
/// square by square of the tokens: with \f$ A_{ss} = (I + L_{ss})^{-1} \f$
/// \f[ E_s = A_{ss} \Bigl(R_s - \sum_{r < s} L_{sr} E_r\Bigr). \f]
/// A, L, R and E are operands in tf32 there, for inputs of either type: all may be beyond the range of fp16.
///
/// \param S  [d x d_k] at the chunk's start   \param V  [c x d], one column for each row of S   \return [c x d]
/// \formula{F84}
template <Ring T, class Rounding>
Mat<T> errors(const Mat<T>& S, const Prepared<T>& p, const Mat<T>& V, const Rounding& round) {
  const Mat<T> S_hat = round.operand(S);
  if (p.solve == Solve::beforehand) return p.T * V - p.W * S_hat.transpose();
  const Mat<T> from_query = p.share.asDiagonal() * Mat<T>(p.Q * S_hat.transpose());   // [c x d]
  Mat<T> R = V - p.read.asDiagonal() * Mat<T>(p.K * S_hat.transpose() + from_query);  // [c x d]
  Mat<T> E(R.rows(), R.cols());
  for (Index i = 0; i < R.rows(); i += p.square) {
    const Index n = std::min(p.square, R.rows() - i), left = R.rows() - i - n;
    E.middleRows(i, n) = p.A.block(i, i, n, n) * round.tf32(R.middleRows(i, n));
    R.bottomRows(left) -= round.tf32(p.L.block(i + n, i, left, n)) * round.tf32(E.middleRows(i, n));
  }
  return E;
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
