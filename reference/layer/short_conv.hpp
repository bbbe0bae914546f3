// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "gates.hpp"

namespace delta {

/// Short causal convolution: each channel mixes its own last n tokens (n = 4 in the published models), then SiLU.
/// \f[ Y_{t,c} = \mathrm{silu}\Bigl(\sum_{i=0}^{n-1} w_{c,i}\, X_{t-n+1+i,\,c}\Bigr) \f]
/// The last weight belongs to the token itself, and no later token enters.
/// \param X [T x c]   \param w [c x n]
/// \param history [n - 1 x c] in: the tokens before the first (zero at the start of a sequence), out: before the next
/// \return [T x c]
/// \formula{F98}
/// \needs{exp}
template <Real T> Mat<T> short_conv(const Mat<T>& X, const Mat<T>& w, Mat<T>& history) {
  Mat<T> past(history.rows() + X.rows(), X.cols());
  past.topRows(history.rows()) = history;
  past.bottomRows(X.rows()) = X;
  Mat<T> Y(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t)
    for (Index c = 0; c < X.cols(); ++c) {
      T sum(0);
      for (Index i = 0; i < w.cols(); ++i) sum += w(c, i) * past(t + i, c);
      Y(t, c) = silu(sum);
    }
  history = past.bottomRows(history.rows()).eval();
  return Y;
}

}  // namespace delta
