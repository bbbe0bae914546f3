// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// The preconditioned delta rule: predict with the key, correct along a rescaled key.
/// \f[ S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)\,(I - \beta_t k_t y_t^\top) + \beta_t v_t y_t^\top, \qquad y_t = M_t k_t,
///     \qquad o_t = S_t q_t \f]
/// k predicts, y writes, q reads out. M is a diagonal matrix that depends on the history: a running sum A of k . k says
/// how often a channel was used, and M, between 1/1.5 and 1.5, shrinks the busy channels; it stands for the inverse of
/// the curvature of the least-squares problem. A rule is a function of one token, so y comes from `write_keys` in
/// reference/layer/precondition.hpp. y = k is `kda`, and with equal decays `gated_delta`. The decay is one per key
/// channel (preconditioned KDA); the preconditioned gated delta rule has the same number in every channel. The erase is
/// not symmetric, so one step may lengthen the state.
/// \formula{C-precond-delta}
/// \source{Tumma, Loo, Rus 2026, Preconditioned DeltaNet, arXiv:2604.21100; its state is S^T}
/// \needs{+ - *}
struct precond_delta {
  static constexpr Input inputs[] = {{.name = "write_key",
                                      .extent = Extent::d_k,
                                      .like = Like::key,
                                      .meaning = "preconditioned key of the write, M k",
                                      .neutral = Neutral::key}};
  static constexpr std::string_view aliases[] = {
      "precond_gated_delta_rule", "preconditioned_delta", "preconditioned_deltanet", "pgdn", "pkda", "precond_kda"};
  static constexpr RuleInfo info{
      .id = "precond_delta",
      .title = "Preconditioned DeltaNet",
      .formula =
          R"(S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)(I - \beta_t k_t y_t^\top) + \beta_t v_t y_t^\top,\quad y_t = M_t k_t)",
      .label = "C-precond-delta",
      .source = "arXiv:2604.21100; its state is S^T",
      .forget = Forget::per_channel,
      .strength = Strength::per_head,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha_k, .x = t.k, .y = t["write_key"], .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].x, .v = d[0].v, .beta = d[0].beta, .alpha_k = d[0].d.d, .values = {d[0].y}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> y = t["write_key"];                                              // [d_k]
    const Mat<T> SD = S * t.alpha_k.asDiagonal();                                 // [d_v x d_k]
    S = SD - t.beta * (SD * t.k) * y.transpose() + t.beta * t.v * y.transpose();  // [d_v x d_k]
    return S * t.q;                                                               // [d_v]
  }
};

}  // namespace delta
