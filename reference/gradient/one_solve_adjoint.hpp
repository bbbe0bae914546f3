// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "../forms/one_solve.hpp"
#include "recurrent_adjoint.hpp"

namespace delta {

/// Solves (I + L)^T X = B by back substitution: row i of X is row i of B less what the rows below contribute.
/// \param L  [C x C], only its strictly lower part is read   \param B  [C x n]   \return X [C x n]
template <Ring T> Mat<T> solve_unit_lower_transposed(const Mat<T>& L, Mat<T> B) {
  const Index C = B.rows();
  for (Index i = C - 2; i >= 0; --i) {
    const Index n = C - 1 - i;
    B.row(i) -= L.col(i).tail(n).transpose() * B.bottomRows(n);
  }
  return B;
}

/// The adjoint of the one-solve form, chunk by chunk in reverse: one transposed triangular solve a chunk, and the same
/// matrices as the forward pass. With dX for the gradient with respect to X, R for the right-hand side
/// \f$ U - \bar P S^\top \f$ of the solve, and G for the gradient with respect to the state at the chunk's end,
/// \f[ dZ = A^\top dO + Y_{out} G^\top, \qquad (I + L)^\top dR = dZ, \qquad
///     dL = -\mathrm{sl}(dR\, Z^\top), \qquad dU = dR, \qquad d\bar P = -dR\, S, \f]
/// \f[ dA = dO\, Z^\top, \qquad dQ_{in} = dO\, S, \qquad dY_{out} = Z G, \qquad
///     d\Phi_j = \sum_i S_{ij} G_{ij}, \qquad dS = dO^\top Q_{in} + G\,\Phi - dR^\top \bar P \f]
/// and what remains is to carry the adjoints of the decayed write keys back row by row, as they were carried forward.
/// \param C  tokens per chunk, at least 1; the chunk states and R matrices R x d_k of one chunk are held at once
/// \needs{+ - *}
template <Ring T>
StreamAdjoint<T> one_solve_adjoint(const Stream<T>& stream, const Mat<T>& dO, const Mat<T>& dS, Index C) {
  const Index m = stream.m, tokens = stream.tokens(), d_k = stream.d_k();
  StreamAdjoint<T> g{.steps = Steps<T>(stream.steps.size()), .Q = Mat<T>(tokens, d_k), .S0 = dS, .m = m};
  std::vector<OneSolve<T>> chunks;
  one_solve(stream, C, [&](const OneSolve<T>& c) { chunks.push_back(c); });

  for (Index n = static_cast<Index>(chunks.size()) - 1; n >= 0; --n) {
    const OneSolve<T>& h = chunks[n];
    const Mat<T>& S = n == 0 ? stream.S0 : chunks[n - 1].S;  // [d_v x d_k] at the chunk's start
    const Mat<T>& G = g.S0;                                  // [d_v x d_k] gradient at the chunk's end
    const Index begin = n * C, c = h.A.rows(), R = h.L.rows();
    const Mat<T> dOc = dO.middleRows(begin, c);  // [c x d_v]

    // What the forward pass carries, as it stands before each micro-step and after the last: row j is the write key y_j
    // since it was written, row R the decay Phi since the chunk's start.
    Mat<T> K = Mat<T>::Zero(R + 1, d_k);
    K.row(R).setOnes();
    std::vector<Mat<T>> carried{K};
    for (Index i = 0; i < R; ++i) {
      const MicroStep<T>& s = stream.steps[m * begin + i];
      s.d.decay_columns(K);
      K.row(i) = s.y.transpose();
      carried.push_back(K);
    }

    const Mat<T> dZ = h.A.transpose() * dOc + h.Y_out * G.transpose();  // [R x d_v]
    const Mat<T> dR = solve_unit_lower_transposed<T>(h.L, dZ);   // [R x d_v]  of the right-hand side, and so of U
    const Mat<T> dL = strictly_lower<T>(-dR * h.Z.transpose());  // [R x R]
    const Mat<T> dP_bar = -dR * S;                               // [R x d_k]
    const Mat<T> dA = dOc * h.Z.transpose();                     // [c x R]  read where j <= t
    const Mat<T> dQ_in = dOc * S;                                // [c x d_k]
    Mat<T> dK(R + 1, d_k);                                       // of what is carried
    dK << h.Z * G, S.cwiseProduct(G).colwise().sum();
    g.S0 = dOc.transpose() * h.Q_in + G * K.row(R).asDiagonal() - dR.transpose() * h.P_bar;  // [d_v x d_k]

    for (Index i = R - 1; i >= 0; --i) {
      const MicroStep<T>& s = stream.steps[m * begin + i];
      const Vec<T> p = s.p();  // [d_k]
      if ((i + 1) % m == 0) {  // the token's last micro-step: A_t = q K^T, Q_in = q . Phi
        const Index t = i / m;
        const Mat<T> q = stream.Q.row(begin + t);   // [1 x d_k]
        const Mat<T> dA_t = dA.row(t).head(i + 1);  // [1 x i + 1]
        g.Q.row(begin + t) = dA_t * carried[i + 1].topRows(i + 1) + carried[i + 1].row(R).cwiseProduct(dQ_in.row(t));
        dK.topRows(i + 1) += dA_t.transpose() * q;
        dK.row(R) += q.cwiseProduct(dQ_in.row(t));
      }
      const Vec<T> dy = dK.row(i).transpose();  // [d_k]
      dK.row(i).setZero();
      Vec<T> dd = carried[i].cwiseProduct(dK).colwise().sum().transpose();  // [d_k]  K <- K diag(d)
      s.d.decay_columns(dK);
      const Vec<T> dp = carried[i].topRows(R).transpose() * dL.row(i).transpose() +
                        carried[i].row(R).cwiseProduct(dP_bar.row(i)).transpose();  // [d_k]  L_i = K p, P_i = Phi . p
      dK.topRows(R) += dL.row(i).transpose() * p.transpose();
      dK.row(R) += dP_bar.row(i).cwiseProduct(p.transpose());

      const Vec<T> read = s.pre_decay ? s.x : s.d * s.x;  // [d_k]  p = beta read
      if (!s.pre_decay) dd += s.beta * s.x.cwiseProduct(dp);
      MicroStep<T>& ds = g.steps[m * begin + i];
      ds.x = s.beta * (s.pre_decay ? dp : s.d * dp);
      ds.y = dy;
      ds.v = s.beta * dR.row(i).transpose();
      ds.beta = read.dot(dp) + s.v.dot(dR.row(i));
      if (!s.d.none()) ds.d = s.d.scalar() ? Decay<T>(dd.sum()) : Decay<T>(dd);
    }
  }
  return g;
}

}  // namespace delta
