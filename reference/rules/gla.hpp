// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Gated linear attention: a decay of its own for every key channel.
/// \f[ S_t = S_{t-1}\,\mathrm{diag}(\alpha_t) + v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// Column j of S, all that was stored under key channel j, fades by alpha_j. Equal channels give `mamba2`, all ones
/// `linear`; with k = 1 - alpha it is HGRN2. The decay depends on the channel, so a rotation of the key space is no
/// symmetry any more, and a chunk form needs a ratio of decays per channel (or none at all, as `one_solve` has it).
/// \formula{C-gla}
/// \source{Yang et al. 2023, Gated Linear Attention, arXiv:2312.06635; its state is S^T}
/// \needs{+ *}
struct gla {
  static constexpr std::string_view aliases[] = {"gated_linear_attention", "hgrn2"};
  static constexpr RuleInfo info{.id = "gla",
                                 .title = "Gated linear attention",
                                 .formula = R"(S_t = S_{t-1}\,\mathrm{diag}(\alpha_t) + v_t k_t^\top)",
                                 .label = "C-gla",
                                 .source = "arXiv:2312.06635; its state is S^T",
                                 .forget = Forget::per_channel,
                                 .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha_k, .x = Vec<T>::Zero(t.k.size()), .y = t.k, .v = t.v}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].y, .v = d[0].v, .alpha_k = d[0].d.d};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S = S * t.alpha_k.asDiagonal();  // [d_v x d_k]
    S += t.v * t.k.transpose();      // [d_v x d_k]
    return S * t.q;                  // [d_v]
  }
};

}  // namespace delta
