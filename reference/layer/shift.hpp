// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/linalg.hpp"

namespace delta {

/// The rows one token earlier: row t of the result is row t - 1 of X, row 0 is what was carried over from the tokens
/// before (zero at the start of a sequence).
/// \param X [T x d]   \param before [d]   \return [T x d]
template <Ring T> Mat<T> previous_rows(const Mat<T>& X, const Vec<T>& before) {
  Mat<T> P(X.rows(), X.cols());
  if (P.rows() == 0) return P;
  P.row(0) = before.transpose();
  P.bottomRows(P.rows() - 1) = X.topRows(X.rows() - 1);
  return P;
}

}  // namespace delta
