// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Kimi Delta Attention: the gated delta rule with a decay of its own for every key channel.
/// \f[ S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top,
///     \qquad o_t = S_t q_t \f]
/// Decay first, then predict from the decayed state, then write. Equal channels give `gated_delta`; without its erase,
/// and with beta v for v, it is `gla`. `gdn2` splits its beta into an erase gate and a write gate.
/// \formula{C-kda}
/// \source{Kimi Team 2025, Kimi Linear, arXiv:2510.26692; its state is S^T}
/// \needs{+ - *}
struct kda {
  static constexpr std::string_view aliases[] = {"kimi_delta_attention", "kimi_delta", "kimi_linear"};
  static constexpr RuleInfo info{
      .id = "kda",
      .title = "Kimi Delta Attention",
      .formula = R"(S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top)",
      .label = "C-kda",
      .source = "arXiv:2510.26692; its state is S^T",
      .forget = Forget::per_channel,
      .strength = Strength::per_head,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha_k, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].x + d[0].y, .v = d[0].v, .beta = d[0].beta, .alpha_k = d[0].d.d};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Mat<T> SD = S * t.alpha_k.asDiagonal();                                     // [d_v x d_k]
    S = SD - t.beta * (SD * t.k) * t.k.transpose() + t.beta * t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;                                                                   // [d_v]
  }
};

}  // namespace delta
