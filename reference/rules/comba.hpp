// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Comba: the prediction is read before the decay, with a key of its own, and the read-out is corrected.
/// \f[ S_t = \alpha_t S_{t-1} - \beta_t (S_{t-1} p_t) k_t^\top + \beta_t v_t k_t^\top,
///     \qquad o_t = S_t (q_t - D_t p_t) \f]
/// p predicts, k writes, q - D p reads out. The layer makes p a fraction of the key, p = c k with c in (0, 1). What
/// is special is that \f$ S_{t-1} p_t \f$ is taken from the state that has not decayed yet; reading it afterwards, as
/// `gated_delta` does, is another function unless alpha = 1. (FLA's kernels read before the decay, its token loop
/// after it.) With alpha = 1, p = k, D = 0 it is `delta`; with p = alpha k, D = 0 it is `gated_delta`. D is a number
/// per head (the token may vary it) and acts on the output only: the states do not depend on it.
/// \formula{C-comba}
/// \source{Hu et al. 2025, Comba, arXiv:2506.02475; its state is S^T}
/// \needs{+ - *}
struct comba {
  static constexpr Input inputs[] = {
      {.name = "p",
       .extent = Extent::d_k,
       .like = Like::key,
       .meaning = "key of the prediction",
       .neutral = Neutral::key},
      {.name = "D", .extent = Extent::one, .like = Like::gate, .meaning = "share of p taken from the query"}};
  static constexpr std::string_view aliases[] = {"comba_rule"};
  static constexpr RuleInfo info{
      .id = "comba",
      .title = "Comba",
      .formula =
          R"(S_t = \alpha_t S_{t-1} - \beta_t (S_{t-1} p_t) k_t^\top + \beta_t v_t k_t^\top,\quad o_t = S_t(q_t - D_t p_t))",
      .label = "C-comba",
      .source = "arXiv:2506.02475; its state is S^T",
      .forget = Forget::per_head,
      .strength = Strength::per_head,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha, .x = t["p"], .y = t.k, .v = t.v, .beta = t.beta, .pre_decay = true}};
  }

  /// Output correction: q - D p.
  template <Ring T> static Vec<T> read(const Token<T>& t) {
    const T D = t["D"](0, 0);
    return t.q - D * t["p"];  // [d_k]
  }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    const Vec<T> p = t["p"], d_p = d[0].x - t["D"](0, 0) * d_q;  // [d_k]
    const Mat<T> d_D = Mat<T>::Constant(1, 1, T(-p.dot(d_q)));   // [1 x 1]
    return {.q = d_q, .k = d[0].y, .v = d[0].v, .beta = d[0].beta, .alpha = d[0].d[0], .values = {d_p, d_D}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> p = t["p"];                                                                // [d_k]
    S = t.alpha * S - t.beta * (S * p) * t.k.transpose() + t.beta * t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q - t["D"](0, 0) * (S * p);                                                // [d_v]
  }
};

}  // namespace delta
