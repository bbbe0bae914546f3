// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Mamba-3 (one input, one output): Mamba-2 that writes the previous pair once more.
/// \f[ S_t = \alpha_t S_{t-1} + \beta_t v_{t-1} k_{t-1}^\top + \gamma_t v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// A trapezoid where Mamba-2 takes a rectangle: alpha, beta and gamma follow from a step size, a rate and a share
/// (`trapezoid`). Two micro-steps, neither of which predicts. q and k are rotated by an angle that accumulates over the
/// tokens, the previous key by its own angle (`rotate_rows`).
///
/// A rule is a function of one token, so these and the previous pair (`previous_rows`) come from reference/layer:
/// `k_prev` and `v_prev`, zero at the first token; `strength_prev` for beta, `strength` for gamma. strength_prev = 0
/// and strength = 1 is `mamba2`.
/// \formula{C-mamba3}
/// \source{Lahoti et al. 2026, Mamba-3, arXiv:2603.15569; its state is S^T}
/// \needs{+ *}
struct mamba3 {
  static constexpr Input inputs[] = {
      {.name = "k_prev", .extent = Extent::d_k, .like = Like::key, .meaning = "key of the previous token, rotated"},
      {.name = "v_prev", .extent = Extent::d_v, .like = Like::value, .meaning = "value of the previous token"},
      {.name = "strength_prev", .extent = Extent::one, .like = Like::beta, .meaning = "strength of the previous pair"},
      {.name = "strength",
       .extent = Extent::one,
       .like = Like::beta,
       .meaning = "strength of this pair",
       .neutral = Neutral::one}};
  static constexpr std::string_view aliases[] = {"mamba3_siso"};
  static constexpr RuleInfo info{
      .id = "mamba3",
      .title = "Mamba-3",
      .formula = R"(S_t = \alpha_t S_{t-1} + \beta_t v_{t-1} k_{t-1}^\top + \gamma_t v_t k_t^\top)",
      .label = "C-mamba3",
      .source = "arXiv:2603.15569; its state is S^T",
      .forget = Forget::per_head,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    const Vec<T> nothing = Vec<T>::Zero(t.k.size());
    return {{.d = t.alpha, .x = nothing, .y = t["k_prev"], .v = t["v_prev"], .beta = t["strength_prev"](0, 0)},
            {.d = {}, .x = nothing, .y = t.k, .v = t.v, .beta = t["strength"](0, 0)}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    auto number = [](const T& a) { return Mat<T>(Mat<T>::Constant(1, 1, a)); };
    return {.q = d_q,
            .k = d[1].y,
            .v = d[1].v,
            .alpha = d[0].d[0],
            .values = {d[0].y, d[0].v, number(d[0].beta), number(d[1].beta)}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> k_prev = t["k_prev"], v_prev = t["v_prev"];  // [d_k], [d_v]
    const T beta = t["strength_prev"](0, 0), gamma = t["strength"](0, 0);
    S = t.alpha * S + beta * v_prev * k_prev.transpose() + gamma * t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;                                                                        // [d_v]
  }
};

}  // namespace delta
