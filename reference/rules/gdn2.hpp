// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Gated DeltaNet-2: what is erased and what is written have gates of their own, channel by channel.
/// \f[ S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)\,(I - (b_t \odot k_t) k_t^\top) + (w_t \odot v_t) k_t^\top,
///     \qquad o_t = S_t q_t \f]
/// The erase gate b acts on the key of the prediction, the write gate w on the value. There is no beta: b = beta 1 and
/// w = beta 1 give `kda`, and equal decays on top `gated_delta`. The erase is not symmetric any more, so one step may
/// lengthen the state, and a sequence of such steps can grow without bound although each error contracts; a decay of at
/// most 0.866 rules that out for unit keys and b in [0, 1].
/// \formula{C-gdn2}
/// \source{Hatamizadeh, Choi, Kautz 2026, Gated DeltaNet-2, arXiv:2605.22791; its state is S^T}
/// \needs{+ - *}
struct gdn2 {
  static constexpr Input inputs[] = {{.name = "erase",
                                      .extent = Extent::d_k,
                                      .like = Like::beta,
                                      .meaning = "erase gate, per key channel",
                                      .neutral = Neutral::one},
                                     {.name = "write",
                                      .extent = Extent::d_v,
                                      .like = Like::beta,
                                      .meaning = "write gate, per value channel",
                                      .neutral = Neutral::one}};
  static constexpr std::string_view aliases[] = {"gated_deltanet2", "gated_delta_rule2"};
  static constexpr RuleInfo info{
      .id = "gdn2",
      .title = "Gated DeltaNet-2",
      .formula = R"(S_t = S_{t-1}\,\mathrm{diag}(\alpha_t)(I - (b_t \odot k_t) k_t^\top) + (w_t \odot v_t) k_t^\top)",
      .label = "C-gdn2",
      .source = "arXiv:2605.22791; its state is S^T",
      .forget = Forget::per_channel,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    const Vec<T> x = t["erase"].cwiseProduct(t.k);  // [d_k]
    const Vec<T> v = t["write"].cwiseProduct(t.v);  // [d_v]
    return {{.d = t.alpha_k, .x = x, .y = t.k, .v = v}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    const Vec<T> erase = t["erase"], write = t["write"];  // [d_k], [d_v]
    return {.q = d_q,
            .k = erase.cwiseProduct(d[0].x) + d[0].y,
            .v = write.cwiseProduct(d[0].v),
            .alpha_k = d[0].d.d,
            .values = {t.k.cwiseProduct(d[0].x), t.v.cwiseProduct(d[0].v)}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> b = t["erase"], w = t["write"];                      // [d_k], [d_v]
    const Vec<T> bk = b.cwiseProduct(t.k), wv = w.cwiseProduct(t.v);  // [d_k], [d_v]
    const Mat<T> SD = S * t.alpha_k.asDiagonal();                     // [d_v x d_k]
    S = SD - (SD * bk) * t.k.transpose() + wv * t.k.transpose();      // [d_v x d_k]
    return S * t.q;                                                   // [d_v]
  }
};

}  // namespace delta
