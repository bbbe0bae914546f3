// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/micro_step.hpp"

namespace delta {

/// The outputs as a linear map of the values and of the initial state, before either is known. N = m T micro-steps,
/// micro-step i sends S to S P_i + beta_i v_i y_i^T with P_i = diag(d_i) - p_i y_i^T.
template <Ring T> struct Parallel {
  Mat<T> A;     ///< [T x N] A_tj = beta_j y_j^T P_{j+1..t} q_t for j <= t, 0 above: what o_t takes of the value v_j
  Mat<T> Q_in;  ///< [T x d_k] row t: P_{1..t} q_t, what o_t reads from the initial state
};

/// The fully parallel form: no state, one T x N matrix, as attention without its softmax.
/// \f[ O = A V + Q_{in} S_0^\top, \qquad A_{tj} = \beta_j\, y_j^\top P_{j+1..t}\, q_t, \qquad
///     P_{j+1..t} = P_{j+1} P_{j+2} \cdots P_t \f]
/// Each query is carried back through time, P_i q = diag(d_i) q - p_i (y_i^T q), and takes beta_i y_i^T q of v_i where
/// it passes. The rows are independent of each other. The final state is what the unit queries read after the last
/// token, so they are carried along as d_k further rows.
/// \param watch  is shown A and Q_in
/// \formula{F40} \formula{F76}  \needs{+ - *}
template <Ring T> Output<T> parallel(const Stream<T>& stream, const Watch<Parallel<T>>& watch = nullptr) {
  const Index tokens = stream.tokens(), d_k = stream.d_k(), N = stream.m * tokens;
  Mat<T> V(N, stream.d_v()), G(tokens + d_k, d_k);  // G: the queries, one a row, as they are carried back
  G << stream.Q, Mat<T>::Identity(d_k, d_k);
  Mat<T> A = Mat<T>::Zero(tokens + d_k, N);
  for (Index i = N - 1; i >= 0; --i) {
    const MicroStep<T>& s = stream.steps[i];
    const Index n = tokens + d_k - i / stream.m;  // the queries of this token and of the later ones
    const Vec<T> a = G.bottomRows(n) * s.y;       // [n]  y_i^T P_{i+1..t} q_t
    A.col(i).tail(n) = s.beta * a;
    s.d.decay_columns(G.bottomRows(n));
    G.bottomRows(n) -= a * s.p().transpose();  // [n x d_k]  P_i P_{i+1..t} q_t
    V.row(i) = s.v.transpose();
  }
  const Mat<T> O = A * V + G * stream.S0.transpose();  // [T + d_k x d_v]
  if (watch) watch({A.topRows(tokens), G.topRows(tokens)});
  return {O.topRows(tokens), O.bottomRows(d_k).transpose()};
}

}  // namespace delta
