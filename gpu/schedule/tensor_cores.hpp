// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <functional>

#include "reference/forms/recurrent.hpp"
#include "reference/scalars/rounded.hpp"

namespace delta::gpu {

/// One chunk as v4 computes it. What it keeps in 16 bits is rounded here too; sums are taken as exact.
struct TensorCoreChunk {
  Mat<double> L_g;      ///< [C x C]
  Mat<double> inverse;  ///< [C x C] (I + L_g)^{-1}, before it is rounded
  Mat<double> W;        ///< [C x d_k] D_g W = (I + L_g)^{-1} B D_g X
  Mat<double> U;        ///< [C x d_v] U~ = (I + L_g)^{-1} B V
  Mat<double> Z;        ///< [C x d_v]
  Mat<double> S;        ///< [d_v x d_k]
  Vec<double> gamma;    ///< [C]
};

/// The schedule of v4 in plain C++: the same products on the same rounded operands, in the same places. Its error is
/// what that kernel is expected to make, and it can be stepped through without a GPU.
///
/// \f[ R = B(V - D_g X \hat S^\top), \quad Z = R + \hat N (\hat R + \check R) + \check N \hat R, \quad
///     O = D_g Q \hat S^\top + \hat P \hat Z, \quad S' = \gamma_C S + \widehat{D_w Z}^\top K \f]
///
/// A hat is a rounding to the 16-bit format, a check the rest, rounded: \f$ \check N = \widehat{N - \hat N} \f$. With a
/// decay per channel the decayed copies of q and k are rounded, and so are the two factors of a score between different
/// blocks of 16 tokens.
///
/// \param f  bf16 or fp16   \param watch  is shown each chunk
/// \formula{F84} \formula{C-kda}
inline Output<double> tensor_cores(const Stream<double>& stream, const Format& f,
                                   const std::function<void(const TensorCoreChunk&)>& watch = nullptr) {
  constexpr Index kChunk = 64, kBlock = 16;
  const auto rounded = [&](const Mat<double>& A) -> Mat<double> {
    return A.unaryExpr([&](double x) { return f.round(x); });
  };
  const Index d_k = stream.d_k(), d_v = stream.d_v();
  Output<double> out{Mat<double>(stream.tokens(), d_v), stream.S0};
  for (Index begin = 0; begin < stream.tokens(); begin += kChunk) {
    const Index C = std::min(kChunk, stream.tokens() - begin);
    const bool per_channel = !stream.steps[begin].d.scalar();
    Mat<double> X(C, d_k), K(C, d_k), V(C, d_v);
    Mat<double> in(C, d_k);                          // row i: decay from the chunk's start to i, per channel
    Mat<double> to_end = Mat<double>::Ones(C, d_k);  // row j: decay after j to the chunk's end
    Vec<double> beta(C);
    for (Index i = 0; i < C; ++i) {
      const MicroStep<double>& s = stream.steps[begin + i];
      X.row(i) = s.x.transpose(), K.row(i) = s.y.transpose(), V.row(i) = s.v.transpose(), beta[i] = s.beta;
      for (Index d = 0; d < d_k; ++d) in(i, d) = (i ? in(i - 1, d) : 1) * s.d[d];
    }
    for (Index j = C - 2; j >= 0; --j)
      for (Index d = 0; d < d_k; ++d) to_end(j, d) = to_end(j + 1, d) * stream.steps[begin + j + 1].d[d];
    const Mat<double> Q = stream.Q.middleRows(begin, C);

    // Scores with the decay between the tokens inside the sum; between blocks each factor is an operand.
    Mat<double> XK = Mat<double>::Zero(C, C), QK = XK;
    for (Index i = 0; i < C; ++i) {
      Vec<double> ratio = Vec<double>::Ones(d_k), late = ratio;  // from j to i, and from the start of i's block to i
      for (Index j = i; j >= 0; --j) {
        const bool split = per_channel && j / kBlock < i / kBlock;
        if (j == i || !split) {
          XK(i, j) = X.row(i) * ratio.asDiagonal() * K.row(j).transpose();
          QK(i, j) = Q.row(i) * ratio.asDiagonal() * K.row(j).transpose();
        } else {
          const Mat<double> key = rounded(K.row(j) * ratio.asDiagonal());
          XK(i, j) = rounded(X.row(i) * late.asDiagonal()).row(0).dot(key.row(0));
          QK(i, j) = rounded(Q.row(i) * late.asDiagonal()).row(0).dot(key.row(0));
        }
        ratio = stream.steps[begin + j].d * ratio;
        if (per_channel && j % kBlock == 0 && j / kBlock == i / kBlock) late = ratio, ratio.setOnes();
      }
    }

    TensorCoreChunk h;
    h.gamma = in.col(0);
    h.L_g = strictly_lower<double>(beta.asDiagonal() * XK);
    h.inverse = solve_unit_lower<double>(h.L_g, Mat<double>::Identity(C, C));
    const Mat<double> X_in = in.cwiseProduct(X), Q_in = in.cwiseProduct(Q), K_out = to_end.cwiseProduct(K);
    h.W = h.inverse * (beta.asDiagonal() * X_in);
    h.U = h.inverse * (beta.asDiagonal() * V);
    const Mat<double> P = rounded(lower<double>(QK)), S = rounded(out.S);
    const Mat<double> N = strictly_lower<double>(h.inverse), N1 = rounded(N), N2 = rounded(N - N1);
    const Mat<double> R = beta.asDiagonal() * (V - (per_channel ? rounded(X_in) : X_in) * S.transpose());
    const Mat<double> R1 = rounded(R), R2 = rounded(R - R1);
    h.Z = R + N1 * (R1 + R2) + N2 * R1;
    out.O.middleRows(begin, C) = rounded((per_channel ? rounded(Q_in) : Q_in) * S.transpose() + P * rounded(h.Z));
    const Mat<double> state = out.S * in.row(C - 1).asDiagonal();
    if (per_channel)
      out.S = state + rounded(h.Z).transpose() * rounded(K_out);
    else
      out.S = state + rounded(to_end.col(0).asDiagonal() * h.Z).transpose() * K;
    h.S = out.S;
    if (watch) watch(h);
  }
  return out;
}

}  // namespace delta::gpu
