// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "../forms/recurrent.hpp"
#include "../rules/q_delta.hpp"
#include "gates.hpp"
#include "normalise.hpp"
#include "rms_norm.hpp"
#include "short_conv.hpp"

namespace delta {

/// The weights of one layer; D is the width of the model. Value head j reads with query and key head j / (HV / H).
template <Real T> struct Block {
  Index H, HV, d_k, d_v;
  Vec<T> norm_in;         ///< [D] weight of the norm before the mixer
  Mat<T> W_q, W_k;        ///< [H d_k x D]
  Mat<T> W_v, W_z;        ///< [HV d_v x D] values, output gate
  Mat<T> W_a, W_beta;     ///< [HV x D] decay, strength
  Mat<T> W_lambda;        ///< [HV x D] share of the query in the prediction; empty: lambda = 0, the gated delta rule
  T b_lambda;             ///< bias of lambda
  Vec<T> A_log, dt_bias;  ///< [HV] learned rate and bias of the decay
  Mat<T> conv_q, conv_k;  ///< [H d_k x n] short convolutions
  Mat<T> conv_v;          ///< [HV d_v x n]
  Vec<T> norm_out;        ///< [d_v] weight of the norm of each head's output
  Mat<T> W_o;             ///< [D x HV d_v]
  T eps;                  ///< of every norm
};

/// What one sequence carries from call to call. Dropping it between calls loses the history; carrying it to another
/// sequence leaks it.
template <Real T> struct BlockState {
  Mat<T> q, k, v;         ///< [n - 1 x channels] last inputs of the convolutions
  std::vector<Mat<T>> S;  ///< [HV] of [d_v x d_k]

  /// The state before the first token.
  explicit BlockState(const Block<T>& w)
      : q(Mat<T>::Zero(w.conv_q.cols() - 1, w.conv_q.rows())),
        k(Mat<T>::Zero(w.conv_k.cols() - 1, w.conv_k.rows())),
        v(Mat<T>::Zero(w.conv_v.cols() - 1, w.conv_v.rows())),
        S(static_cast<std::size_t>(w.HV), Mat<T>::Zero(w.d_v, w.d_k)) {}
};

/// A whole Gated DeltaNet layer (with `W_lambda` a Q-Delta layer): norm, projections, short convolutions with SiLU,
/// unit queries and keys, gates, the rule, gated norm, projection, residual.
/// \param X [T x D] one sequence, or its next tokens   \param s carried over; edited   \return [T x D]
/// \formula{F64} \formula{F98} \formula{F99}
/// \needs{/ exp log sqrt}
template <Real T> Mat<T> block(const Block<T>& w, const Mat<T>& X, BlockState<T>& s) {
  using std::sqrt;
  const Index tokens = X.rows();
  Mat<T> N(tokens, X.cols());  // [T x D]
  for (Index t = 0; t < tokens; ++t) N.row(t) = rms_norm<T>(X.row(t), w.norm_in, w.eps).transpose();

  const Mat<T> Q = short_conv<T>(N * w.W_q.transpose(), w.conv_q, s.q);  // [T x H d_k]
  const Mat<T> K = short_conv<T>(N * w.W_k.transpose(), w.conv_k, s.k);  // [T x H d_k]
  const Mat<T> V = short_conv<T>(N * w.W_v.transpose(), w.conv_v, s.v);  // [T x HV d_v]
  const Mat<T> Z = N * w.W_z.transpose();                                // [T x HV d_v]

  const T scale = T(1) / T(sqrt(T(static_cast<int>(w.d_k))));
  Mat<T> Y(tokens, w.HV * w.d_v);  // [T x HV d_v]
  for (Index j = 0; j < w.HV; ++j) {
    const Index h = j / (w.HV / w.H);
    Stream<T> stream{.steps = {}, .Q = Mat<T>(tokens, w.d_k), .S0 = s.S[j]};
    for (Index t = 0; t < tokens; ++t) {
      const Vec<T> n = N.row(t);
      const Token<T> x{.q = l2_normalise<T>(Q.row(t).segment(h * w.d_k, w.d_k), w.eps),
                       .k = l2_normalise<T>(K.row(t).segment(h * w.d_k, w.d_k), w.eps),
                       .v = V.row(t).segment(j * w.d_v, w.d_v),
                       .beta = sigmoid_gate<T>(w.W_beta.row(j), n),
                       .alpha = decay(log_decay<T>(w.A_log[j], w.W_a.row(j).dot(n), w.dt_bias[j])),
                       .lambda = w.W_lambda.size() == 0 ? T(0) : sigmoid_gate<T>(w.W_lambda.row(j), n, w.b_lambda)};
      stream.steps.push_back(q_delta::steps(x).front());
      stream.Q.row(t) = scale * x.q.transpose();  // the scale is of the read-out alone
    }
    const Output<T> out = recurrent(stream);
    s.S[j] = out.S;
    for (Index t = 0; t < tokens; ++t)
      Y.row(t).segment(j * w.d_v, w.d_v) =
          gated_rms_norm<T>(out.O.row(t), w.norm_out, Z.row(t).segment(j * w.d_v, w.d_v), w.eps).transpose();
  }
  return X + Y * w.W_o.transpose();
}

}  // namespace delta
