// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Q-Delta: the gated delta rule whose prediction is read with a mix of key and query.
/// \f[ S_t = \alpha_t S_{t-1} (I - \beta_t x_t k_t^\top) + \beta_t v_t k_t^\top, \qquad x_t = k_t + \lambda_t q_t,
///     \qquad o_t = S_t q_t \f]
/// Three roles: x predicts, k writes, q reads out. lambda = 0 is `gated_delta`, and with alpha = 1 `delta`. The
/// feedback term \f$ \lambda S q \f$ is read from the decayed state, as S k is. It is no gradient descent on
/// \f$ \tfrac12 |S x - v|^2 \f$, which would write along x. lambda is a sigmoid of the input, one number per head
/// (`sigmoid_gate` in reference/layer/gates.hpp).
///
/// For unit keys and queries, 0 < lambda < 1 and 0 < beta <= 1 give \f$ 0 < \beta\, x \cdot k < 2 \f$, so that the
/// error of each token shrinks; the state may grow all the same, as the erase \f$ x k^\top \f$ is not symmetric.
/// \formula{F72} \formula{F73} \formula{F90}
/// \source{Q-Delta, arXiv:2606.08804}
/// \needs{+ - *}
struct q_delta {
  static constexpr std::string_view aliases[] = {"qdelta", "q_deltanet"};
  static constexpr RuleInfo info{
      .id = "q_delta",
      .title = "Q-Delta",
      .formula =
          R"(S_t = \alpha_t S_{t-1}(I - \beta_t x_t k_t^\top) + \beta_t v_t k_t^\top,\quad x_t = k_t + \lambda_t q_t)",
      .label = "F72",
      .source = "arXiv:2606.08804",
      .forget = Forget::per_head,
      .strength = Strength::per_head,
      .lambda = true,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    const Vec<T> x = t.k + t.lambda * t.q;  // [d_k]
    return {{.d = t.alpha, .x = x, .y = t.k, .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q + t.lambda * d[0].x,
            .k = d[0].x + d[0].y,
            .v = d[0].v,
            .beta = d[0].beta,
            .alpha = d[0].d[0],
            .lambda = t.q.dot(d[0].x)};
  }

  /// As the paper's pseudo code has it: the residual subtracts what the key reads and lambda times what the query
  /// reads.
  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S = t.alpha * S;                                               // [d_v x d_k]
    const Vec<T> residual = t.v - S * t.k - t.lambda * (S * t.q);  // [d_v]
    S += t.beta * residual * t.k.transpose();                      // [d_v x d_k]
    return S * t.q;                                                // [d_v]
  }
};

}  // namespace delta
