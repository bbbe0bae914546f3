// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"
#include "shift.hpp"

namespace delta {

/// Decay and the two strengths of one token of Mamba-3: `alpha`, `strength_prev` and `strength` of the rule.
template <Real T> struct Trapezoid { T alpha, previous, current; };

/// The trapezoid rule for h' = A h + k v over a step Delta, with share lambda at its end.
/// \f[ \alpha = e^{\Delta A}, \qquad \beta = (1 - \lambda) \Delta\, \alpha, \qquad \gamma = \lambda \Delta \f]
/// lambda = 1 is Mamba-2, lambda = 1/2 the classical trapezoid.
/// \param step Delta > 0   \param A below 0   \param lambda in [0, 1]
/// \formula{C-mamba3}
/// \needs{exp}
template <Real T> Trapezoid<T> trapezoid(const T& step, const T& A, const T& lambda) {
  using std::exp;
  const T alpha = exp(T(step * A));
  return {alpha, (T(1) - lambda) * step * alpha, lambda * step};
}

/// Turns the pairs (x_0, x_1), (x_2, x_3), ... by angle_0, angle_1, ...; what lies beyond the angles stays.
/// \param x [d]   \param angle [n], 2n <= d
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
/// \param X [T x d]   \param steps [T x n] angle steps Delta_t theta_t   \param angle [n] in: the sum before, out:
/// after \needs{sin cos}
template <Real T> Mat<T> rotate_rows(const Mat<T>& X, const Mat<T>& steps, Vec<T>& angle) {
  Mat<T> Y(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t) {
    angle += steps.row(t).transpose();
    Y.row(t) = rotate<T>(X.row(t), angle).transpose();
  }
  return Y;
}

}  // namespace delta
