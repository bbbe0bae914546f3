// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

#include "../core/micro_step.hpp"

namespace delta {

/// The micro-steps of one chunk, r = 1..R, before anything is solved. Phi_{j..i} is the product of the decays after
/// micro-step j up to and including i; no division forms it, so a decay of zero inside the chunk is as good as any.
template <Ring T> struct OneSolve {
  Mat<T> L;      ///< [R x R] strictly lower: L_ij = (Phi_{j..i-1} y_j) . p_i
  Mat<T> P_bar;  ///< [R x d_k] row i: Phi_{0..i-1} p_i, what row i reads from the state at the chunk's start
  Mat<T> U;      ///< [R x d_v] row i: u_i = beta_i v_i
  Mat<T> Z;      ///< [R x d_v] corrections: (I + L) Z = U - P_bar S^T
  Mat<T> Y_out;  ///< [R x d_k] row j: Phi_{j..R} y_j, the write keys as they stand at the chunk's end
  Mat<T> A;      ///< [C x R] scores of the outputs: A_tj = q_t . (Phi_{j..t} y_j)
  Mat<T> Q_in;   ///< [C x d_k] row t: Phi_{0..t} q_t, what the outputs read from the state at the chunk's start
  Mat<T> S;      ///< [d_v x d_k] the state at the chunk's end
};

/// The chunk form with one triangular solve, for every rule: any decay, zero included, any number of micro-steps.
/// \f[ (I + L) Z = U - \bar P S^\top, \quad S' = S\,\Phi + Z^\top Y_{out}, \quad O = Q_{in} S^\top + A Z \f]
/// The decayed write keys are carried along row by row, as the recurrence carries its state.
/// \param C  tokens per chunk, at least 1; the last chunk may be shorter
/// \param watch  is shown each chunk's intermediates
/// \formula{C-one-solve}  \needs{+ - *}
template <Ring T> Output<T> one_solve(const Stream<T>& stream, Index C, const Watch<OneSolve<T>>& watch = nullptr) {
  const Index d_k = stream.d_k(), d_v = stream.d_v(), m = stream.m;
  Output<T> out{Mat<T>(stream.tokens(), d_v), stream.S0};
  for (Index begin = 0; begin < stream.tokens(); begin += C) {
    const Index c = std::min(C, stream.tokens() - begin), R = m * c;
    OneSolve<T> h{.L = Mat<T>::Zero(R, R),
                  .P_bar = Mat<T>(R, d_k),
                  .U = Mat<T>(R, d_v),
                  .Z = {},
                  .Y_out = Mat<T>(R, d_k),
                  .A = Mat<T>::Zero(c, R),
                  .Q_in = Mat<T>(c, d_k),
                  .S = out.S};
    Mat<T> Phi = Mat<T>::Ones(1, d_k);  // [1 x d_k] Phi_{0..i}, the decay since the chunk's start
    for (Index i = 0; i < R; ++i) {
      const MicroStep<T>& s = stream.steps[m * begin + i];
      const Vec<T> p = s.p();  // [d_k]
      h.L.row(i).head(i) = (h.Y_out.topRows(i) * p).transpose();
      h.P_bar.row(i) = Phi.cwiseProduct(p.transpose());
      h.U.row(i) = s.u().transpose();
      s.d.decay_columns(Phi);
      s.d.decay_columns(h.Y_out.topRows(i));
      h.Y_out.row(i) = s.y.transpose();
      if ((i + 1) % m == 0) {  // the token's last micro-step
        const Index t = i / m;
        const Mat<T> q = stream.Q.row(begin + t);  // [1 x d_k]
        h.A.row(t).head(i + 1) = q * h.Y_out.topRows(i + 1).transpose();
        h.Q_in.row(t) = Phi.cwiseProduct(q);
      }
    }
    h.Z = solve_unit_lower<T>(h.L, h.U - h.P_bar * h.S.transpose());    // [R x d_v]
    out.O.middleRows(begin, c) = h.Q_in * h.S.transpose() + h.A * h.Z;  // [c x d_v]
    h.S = h.S * Phi.row(0).asDiagonal() + h.Z.transpose() * h.Y_out;    // [d_v x d_k]
    out.S = h.S;
    if (watch) watch(h);
  }
  return out;
}

}  // namespace delta
