// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// The gated delta rule (Gated DeltaNet): forget, then correct the value stored under the key.
/// \f[ S_t = \alpha_t S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// k predicts and writes, q reads out. The order matters: the state decays first, the prediction is read from the
/// decayed state, and the value that is written is not decayed. alpha = 1 is `delta`; alpha = 0 clears the state and
/// leaves \f$ \beta v k^\top \f$; beta = 0 leaves the decayed state, still readable. It is one step of gradient
/// descent on \f$ \tfrac12 |S k - v|^2 \f$ with weight decay, if the gradient is taken at the decayed state.
///
/// Its relatives: `kda` decays per channel, `comba` predicts before the decay, `q_delta` predicts with key and query,
/// `gated_delta_channel` has a beta per value channel, `delta_product` several keys a token.
/// \formula{F48} \formula{F50} \formula{F58}
/// \source{Yang, Kautz, Hatamizadeh 2024, Gated Delta Networks, arXiv:2412.06464, Eq. 10}
/// \needs{+ - *}
struct gated_delta {
  static constexpr std::string_view aliases[] = {"gdn", "gated_deltanet", "gated_delta_rule"};
  static constexpr RuleInfo info{
      .id = "gated_delta",
      .title = "Gated DeltaNet",
      .formula = R"(S_t = \alpha_t S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top)",
      .label = "F48",
      .source = "arXiv:2412.06464, Eq. 10",
      .forget = Forget::per_head,
      .strength = Strength::per_head,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].x + d[0].y, .v = d[0].v, .beta = d[0].beta, .alpha = d[0].d[0]};
  }

  /// S (I - beta k k^T), multiplied out once: S - beta (S k) k^T.
  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S = t.alpha * (S - t.beta * (S * t.k) * t.k.transpose()) + t.beta * t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;                                                                             // [d_v]
  }
};

}  // namespace delta
