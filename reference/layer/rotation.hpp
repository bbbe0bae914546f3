// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

/// Turns the pairs (x_0, x_1), (x_2, x_3), ... by angle_0, angle_1, ...; what lies beyond the angles stays.
/// \param x [d]   \param angle [n], 2n <= d
/// \formula{C-mamba3}
/// \needs{sin cos}
template <Real T> Vec<T> rotate(Vec<T> x, const Vec<T>& angle) {
  using std::cos, std::sin;
  for (Index i = 0; i < angle.size(); ++i) {
    const T c = cos(angle[i]), s = sin(angle[i]), a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = c * a - s * b;
    x[2 * i + 1] = s * a + c * b;
  }
  return x;
}

/// Row t turned by the sum of the angle steps 0..t, queries and keys alike. A score q_t . k_s then depends on the steps
/// between the two tokens alone.
/// \param X [T x d]   \param steps [T x n] angle steps Delta_t theta_t
/// \param angle [n] in: the sum before the first row, out: after the last
/// \needs{sin cos}
template <Real T> Mat<T> rotate_rows(const Mat<T>& X, const Mat<T>& steps, Vec<T>& angle) {
  Mat<T> Y(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t) {
    angle += steps.row(t).transpose();
    Y.row(t) = rotate<T>(X.row(t), angle).transpose();
  }
  return Y;
}

}  // namespace delta
