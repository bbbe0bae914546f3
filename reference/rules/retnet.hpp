// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"
#include "mamba2.hpp"

namespace delta {

/// RetNet's retention: linear attention whose memory fades at a fixed rate.
/// \f[ S_t = \alpha S_{t-1} + v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// The recurrence is that of `mamba2`; what is special is the decay, one constant per head, and no function of the
/// input. It is given as any decay is, one number per token and head; `retnet_alpha` in reference/layer/gates.hpp
/// computes RetNet's constants \f$ 1 - 2^{-5-h} \f$. Lightning attention has the same recurrence with other
/// constants. The rotation that RetNet applies to q and k is part of the keys here.
/// \formula{F10} \formula{F13}
/// \source{Sun et al. 2023, Retentive Network, arXiv:2307.08621; its state is S^T}
/// \needs{+ *}
struct retnet {
  static constexpr std::string_view aliases[] = {"retention", "lightning", "lightning_attention"};
  static constexpr RuleInfo info{.id = "retnet",
                                 .title = "RetNet",
                                 .formula = R"(S_t = \alpha S_{t-1} + v_t k_t^\top)",
                                 .label = "F10",
                                 .source = "arXiv:2307.08621; its state is S^T",
                                 .forget = Forget::per_head,
                                 .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) { return mamba2::steps(t); }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    return mamba2::pullback(t, d, d_q);
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S = t.alpha * S + t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;                           // [d_v]
  }
};

}  // namespace delta
