// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>

#include "../core/linalg.hpp"

namespace delta {

// Kaczmarz, EFLA and Longhorn are the delta rule with another strength, a function of beta and n = |k|^2. Pass the
// result as beta of `delta` (or of any rule that takes one). All follow from S_t k = (1 - beta n) S_{t-1} k + beta n v.

/// Kaczmarz: the step after which S_t k = v, whatever the length of the key. A zero key can be given no value; its
/// strength is 0.
/// \f[ \beta_{eff} = 1 / |k|^2 \f]
/// \formula{F22} \formula{C-kaczmarz}
/// \needs{/}
template <Field T> T kaczmarz(const T& n) { return n == T(0) ? T(0) : T(T(1) / n); }

/// EFLA: the exact flow of dS/ds = (v - S k) k^T over the time beta, where the delta rule takes one Euler step.
/// Then 1 - beta_eff n = e^{-beta n}, which lies in (0, 1] for every beta >= 0.
/// \f[ \beta_{eff} = (1 - e^{-\beta n}) / n, \qquad \beta \text{ at } n = 0 \f]
/// \formula{C-efla}
/// \source{arXiv:2512.12602}
/// \needs{/ exp}
template <Real T> T efla(const T& beta, const T& n) {
  using std::expm1;
  return n == T(0) ? beta : T(-T(expm1(T(-beta * n))) / n);
}

/// Longhorn: the exact minimiser of |S - S_{t-1}|^2 + beta |S k - v|^2 over S. (Its published code multiplies the state
/// element by element instead, which is not this step.)
/// \f[ \beta_{eff} = \beta / (1 + \beta n) \f]
/// \formula{F57} \formula{C-longhorn}
/// \source{arXiv:2407.14207}
/// \needs{/}
template <Field T> T longhorn(const T& beta, const T& n) { return beta / (T(1) + beta * n); }

}  // namespace delta
