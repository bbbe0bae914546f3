// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"
#include "gated_delta.hpp"

namespace delta {

/// The gated delta rule with a strength of its own for every value channel.
/// \f[ S_t = \alpha_t S_{t-1} + \bigl(\beta_t \odot (v_t - \alpha_t S_{t-1} k_t)\bigr) k_t^\top,
///     \qquad o_t = S_t q_t \f]
/// beta has d_v entries. No single matrix acts on the state from the right any more: two rows of S that were equal
/// become unequal. But row c of S depends on channel c alone, so this is d_v independent gated delta rules with d_v =
/// 1, and that is how every form runs it: `steps` sees one channel at a time, with its beta and its value. A chunk form
/// needs one triangular solve a channel. Equal entries give `gated_delta`.
/// \formula{F61}
/// \source{rasbt/LLMs-from-scratch, ch04/08; FLA kernels call it headwise beta}
/// \needs{+ - *}
struct gated_delta_channel {
  static constexpr std::string_view aliases[] = {"headwise_beta", "gated_delta_headwise"};
  static constexpr RuleInfo info{
      .id = "gated_delta_channel",
      .title = "Gated DeltaNet, beta per value channel",
      .formula = R"(S_t = \alpha_t S_{t-1} + (\beta_t \odot (v_t - \alpha_t S_{t-1} k_t)) k_t^\top)",
      .label = "F61",
      .source = "rasbt/LLMs-from-scratch, ch04/08",
      .forget = Forget::per_head,
      .strength = Strength::per_value,
      .aliases = aliases};

  /// One value channel, whose beta and v are those of the token here: the gated delta rule with d_v = 1.
  template <Ring T> static Steps<T> steps(const Token<T>& t) { return gated_delta::steps(t); }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    return gated_delta::pullback(t, d, d_q);
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S *= t.alpha;                                               // [d_v x d_k]
    const Vec<T> write = t.beta_v.cwiseProduct(t.v - S * t.k);  // [d_v]
    S += write * t.k.transpose();                               // [d_v x d_k]
    return S * t.q;                                             // [d_v]
  }
};

}  // namespace delta
