// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// The delta rule (DeltaNet): read what the key holds, and write only the difference.
/// \f[ S_t = S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// One step of gradient descent of size beta on \f$ \tfrac12 |S k - v|^2 \f$, after which
/// \f[ S_t k_t = (1 - \beta_t |k_t|^2)\, S_{t-1} k_t + \beta_t |k_t|^2\, v_t . \f]
/// With a unit key, beta = 0 changes nothing and beta = 1 replaces what the key held. beta in (0, 2) still contracts;
/// beyond 1 it flips the sign of the old value, which lets the state count parity.
///
/// Three published rules are this one with another strength, computed from \f$ n = |k|^2 \f$ by
/// reference/layer/strength.hpp and passed as beta:
/// - Kaczmarz, \f$ 1/n \f$: afterwards \f$ S_t k = v \f$ for any key;
/// - EFLA, \f$ (1 - e^{-\beta n})/n \f$: the exact flow of the gradient;
/// - Longhorn, \f$ \beta/(1 + \beta n) \f$: the exact minimiser of its objective.
///
/// With a decay it becomes `gated_delta`, with several keys a token `delta_product`.
/// \formula{F20} \formula{F22} \formula{F27}
/// \source{Schlag, Irie, Schmidhuber 2021, arXiv:2102.11174; Yang et al. 2024, arXiv:2406.06484}
/// \needs{+ - *}
struct delta {
  static constexpr std::string_view aliases[] = {"deltanet", "delta_rule"};
  static constexpr RuleInfo info{.id = "delta",
                                 .title = "DeltaNet",
                                 .formula = R"(S_t = S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top)",
                                 .label = "F20",
                                 .source = "arXiv:2102.11174, arXiv:2406.06484",
                                 .strength = Strength::per_head,
                                 .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = {}, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].x + d[0].y, .v = d[0].v, .beta = d[0].beta};
  }

  /// As it is explained: fetch the old value, mix it with the new one, and exchange the two under the key.
  /// \formula{F21}
  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> v_old = S * t.k;                                 // [d_v]
    const Vec<T> v_new = t.beta * t.v + (T(1) - t.beta) * v_old;  // [d_v]
    S += v_new * t.k.transpose() - v_old * t.k.transpose();       // [d_v x d_k]
    return S * t.q;                                               // [d_v]
  }
};

}  // namespace delta
