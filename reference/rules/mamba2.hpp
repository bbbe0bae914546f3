// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Mamba-2, also known as simple gated linear attention: one data-dependent decay for the whole state.
/// \f[ S_t = \alpha_t S_{t-1} + v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// In the letters of the state space model, \f$ h_t = a_t h_{t-1} + B_t x_t \f$ and \f$ y_t = C_t h_t \f$: k is B, q
/// is C, v is the input x already multiplied by its step size \f$ \Delta \f$, and \f$ a = e^{\Delta A} \f$. alpha
/// weakens all associations alike, so old keys are forgotten but never corrected; `gated_delta` adds the correction.
/// The skip D x and the gate z of the layer are outside the rule.
/// \formula{F10} \formula{F11} \formula{F16}
/// \source{Dao, Gu 2024, arXiv:2405.21060; its state is S^T}
/// \needs{+ *}
struct mamba2 {
  static constexpr std::string_view aliases[] = {"simple_gla", "ssd"};
  static constexpr RuleInfo info{.id = "mamba2",
                                 .title = "Mamba-2",
                                 .formula = R"(S_t = \alpha_t S_{t-1} + v_t k_t^\top)",
                                 .label = "F10",
                                 .source = "arXiv:2405.21060; its state is S^T",
                                 .forget = Forget::per_head,
                                 .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha, .x = Vec<T>::Zero(t.k.size()), .y = t.k, .v = t.v}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].y, .v = d[0].v, .alpha = d[0].d[0]};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S = t.alpha * S + t.v * t.k.transpose();  // [d_v x d_k]  h = a h + B x
    return S * t.q;                           // [d_v]        y = C h
  }
};

}  // namespace delta
