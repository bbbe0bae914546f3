// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

/// Decay and the two strengths of one token of Mamba-3: `alpha`, `strength_prev` and `strength` of the rule.
template <Real T> struct Trapezoid { T alpha, previous, current; };

/// The trapezoid rule for the flow S' = A S + v k^T over a step Delta, with the share lambda at its end.
/// \f[ \alpha = e^{\Delta A}, \qquad \beta = (1 - \lambda) \Delta\, \alpha, \qquad \gamma = \lambda \Delta \f]
/// lambda = 1 is Mamba-2, lambda = 1/2 the classical trapezoid.
/// \param step Delta > 0   \param A below 0   \param lambda in [0, 1]
/// \formula{C-mamba3}
/// \source{arXiv:2603.15569}
/// \needs{exp}
template <Real T> Trapezoid<T> trapezoid(const T& step, const T& A, const T& lambda) {
  using std::exp;
  const T alpha = exp(T(step * A));
  return {alpha, (T(1) - lambda) * step * alpha, lambda * step};
}

}  // namespace delta
