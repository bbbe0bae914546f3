// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <Eigen/Core>

#include "ring.hpp"

namespace delta {

using Index = Eigen::Index;
template <Ring T> using Mat = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <Ring T> using Vec = Eigen::Matrix<T, Eigen::Dynamic, 1>;

/// Strictly lower part, sl(A): entry (i, j) is kept where j < i.
template <Ring T> Mat<T> strictly_lower(const Mat<T>& A) {
  return Mat<T>(A.template triangularView<Eigen::StrictlyLower>());
}

/// Lower part with its diagonal, M . A for the causal mask M_ij = [j <= i].
template <Ring T> Mat<T> lower(const Mat<T>& A) { return Mat<T>(A.template triangularView<Eigen::Lower>()); }

/// Solves (I + L) Z = B by forward substitution: row i of Z is row i of B less what the rows above contribute.
/// The diagonal is 1, so the solve needs no division and exists over any ring.
/// \param L  [C x C], only its strictly lower part is read   \param B  [C x n]   \return Z [C x n]
/// \formula{F38}
template <Ring T> Mat<T> solve_unit_lower(const Mat<T>& L, Mat<T> B) {
  for (Index i = 1; i < B.rows(); ++i) B.row(i) -= L.row(i).head(i) * B.topRows(i);
  return B;
}

}  // namespace delta
