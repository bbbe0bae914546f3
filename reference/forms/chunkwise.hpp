// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>

#include "../core/micro_step.hpp"

namespace delta {

/// One chunk of R micro-steps as rows, and its decays: what every chunk form with a scalar decay starts from.
/// H is built from running products, so alpha = 0 inside a chunk is no special case.
template <Ring T> struct ChunkRows {
  Mat<T> X, Y;   ///< [R x d_k] read keys and write keys
  Mat<T> V;      ///< [R x d_v] targets
  Mat<T> Q;      ///< [c x d_k] queries
  Vec<T> beta;   ///< [R]
  Vec<T> gamma;  ///< [R] gamma_i = alpha_1 ... alpha_i
  Mat<T> H;      ///< [R x R] H_ij = alpha_{j+1} ... alpha_i for j <= i, H_ii = 1, 0 above

  /// The tokens begin .. begin + c - 1.
  ChunkRows(const Stream<T>& stream, Index begin, Index c)
      : X(stream.m * c, stream.d_k()),
        Y(stream.m * c, stream.d_k()),
        V(stream.m * c, stream.d_v()),
        Q(stream.Q.middleRows(begin, c)),
        beta(stream.m * c),
        gamma(stream.m * c),
        H(Mat<T>::Identity(stream.m * c, stream.m * c)) {
    for (Index i = 0; i < beta.size(); ++i) {
      const MicroStep<T>& s = stream.steps[stream.m * begin + i];
      X.row(i) = s.x.transpose(), Y.row(i) = s.y.transpose(), V.row(i) = s.v.transpose();
      beta[i] = s.beta, gamma[i] = s.d[0];
      if (i == 0) continue;
      H.row(i).head(i) = gamma[i] * H.row(i - 1).head(i);
      gamma[i] *= gamma[i - 1];
    }
  }
};

/// Everything the derivation of the chunk form names, for one chunk of R micro-steps. B = diag(beta), D_g =
/// diag(gamma).
template <Ring T> struct Chunk {
  Vec<T> gamma;  ///< [R] gamma_i = alpha_1 ... alpha_i
  Mat<T> H;      ///< [R x R] H_ij = alpha_{j+1} ... alpha_i for j <= i, H_ii = 1, 0 above
  Mat<T> L;      ///< [R x R] L = sl(B X Y^T)
  Mat<T> L_g;    ///< [R x R] L_g = sl(B (H . X Y^T))
  Mat<T> W;      ///< [R x d_k] (I + L) W = B X
  Mat<T> U;      ///< [R x d_v] U~: (I + L_g) U~ = B V
  Mat<T> Z;      ///< [R x d_v] Z = U~ - D_g W S^T, the corrections beta_i e~_i
  Mat<T> S;      ///< [d_v x d_k] the state at the chunk's end
};

/// Whether the derivation applies: scalar decay, read after the decay. The other streams go through `one_solve`.
template <Ring T> bool chunkwise_applies(const Stream<T>& stream) {
  return std::ranges::all_of(stream.steps, [](const MicroStep<T>& s) { return s.d.scalar() && !s.pre_decay; });
}

/// The chunk form as it is derived: two triangular solves, W without decay, U~ with it.
/// \f[ (I + L)W = BX, \quad (I + L_g)\tilde U = BV, \quad Z = \tilde U - D_g W S^\top \f]
/// \f[ S' = \gamma_C S + Z^\top Y_{out}, \qquad O = D_g Q S^\top + (H \odot Q Y^\top) Z \f]
/// X holds the read keys and Y the write keys, one row a micro-step (X = Y = K for the delta rule).
/// \param C  tokens per chunk, at least 1; the last chunk may be shorter   \param watch  is shown each chunk
/// \formula{F37} \formula{F53} \formula{F55} \formula{F83} \formula{F84}  \needs{+ - *}
template <Ring T> Output<T> chunkwise(const Stream<T>& stream, Index C, const Watch<Chunk<T>>& watch = nullptr) {
  const Index m = stream.m;
  Output<T> out{Mat<T>(stream.tokens(), stream.d_v()), stream.S0};
  for (Index begin = 0; begin < stream.tokens(); begin += C) {
    const Index c = std::min(C, stream.tokens() - begin), R = m * c;
    const ChunkRows<T> r(stream, begin, c);

    Chunk<T> h{.gamma = r.gamma, .H = r.H};
    const Mat<T> XY = r.X * r.Y.transpose();                                // [R x R]
    h.L = strictly_lower<T>(r.beta.asDiagonal() * XY);                      // [R x R]    F83
    h.L_g = strictly_lower<T>(r.beta.asDiagonal() * h.H.cwiseProduct(XY));  // [R x R]    F83
    h.W = solve_unit_lower<T>(h.L, r.beta.asDiagonal() * r.X);              // [R x d_k]  F83
    h.U = solve_unit_lower<T>(h.L_g, r.beta.asDiagonal() * r.V);            // [R x d_v]  F83
    h.Z = h.U - h.gamma.asDiagonal() * (h.W * out.S.transpose());           // [R x d_v]  F84

    const auto last = Eigen::seqN(m - 1, c, m);                                   // the rows that are read out
    const Mat<T> QY = h.H(last, Eigen::all).cwiseProduct(r.Q * r.Y.transpose());  // [c x R]    H . Q Y^T
    const Mat<T> Y_out = h.H.row(R - 1).asDiagonal() * r.Y;                       // [R x d_k]  gamma_C / gamma_j y_j
    out.O.middleRows(begin, c) = h.gamma(last).asDiagonal() * (r.Q * out.S.transpose()) + QY * h.Z;  // [c x d_v]  F84
    out.S = h.gamma[R - 1] * out.S + h.Z.transpose() * Y_out;                                        // [d_v x d_k]  F84
    h.S = out.S;
    if (watch) watch(h);
  }
  return out;
}

}  // namespace delta
