// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// RWKV-7: erase along one key, write along another.
/// \f[ S_t = S_{t-1}\,(\mathrm{diag}(\alpha_t) - \kappa_t (a_t \odot \kappa_t)^\top) + v_t k_t^\top,
///     \qquad o_t = S_t q_t \f]
/// In the letters of the source: w is the decay alpha, kappa the removal key (of unit length), a the in-context
/// learning rate per channel, k the replacement key, r the query q. It takes two micro-steps. The first erases: it
/// reads \f$ S \kappa \f$ from the state before the decay and takes it away along \f$ a \odot \kappa \f$. The second
/// writes v along k and reads nothing. Unlike the delta rule, the erased key and the written key are free of each
/// other.
///
/// a = 0 is `gla`. \f$ \kappa = \mathrm{diag}(\alpha) k \f$, \f$ a = \beta / \alpha \f$ and beta v for v are `kda`.
/// The family is also known as diagonal plus low rank (DPLR), with alpha = 1 as IPLR.
/// \formula{C-rwkv7}
/// \source{Peng et al. 2025, RWKV-7, arXiv:2503.14456; row vectors there}
/// \needs{+ - *}
struct rwkv7 {
  static constexpr Input inputs[] = {
      {.name = "a", .extent = Extent::d_k, .like = Like::beta, .meaning = "in-context learning rate, per key channel"},
      {.name = "kappa", .extent = Extent::d_k, .like = Like::key, .meaning = "removal key"}};
  static constexpr std::string_view aliases[] = {"goose"};
  static constexpr RuleInfo info{
      .id = "rwkv7",
      .title = "RWKV-7",
      .formula = R"(S_t = S_{t-1}(\mathrm{diag}(\alpha_t) - \kappa_t (a_t \odot \kappa_t)^\top) + v_t k_t^\top)",
      .label = "C-rwkv7",
      .source = "arXiv:2503.14456; row vectors there",
      .forget = Forget::per_channel,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    const Vec<T> kappa = t["kappa"], erased = t["a"].cwiseProduct(kappa);  // [d_k]
    return {{.d = t.alpha_k, .x = kappa, .y = erased, .v = Vec<T>::Zero(t.v.size()), .pre_decay = true},
            {.d = {}, .x = Vec<T>::Zero(t.k.size()), .y = t.k, .v = t.v}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    const Vec<T> a = t["a"], kappa = t["kappa"];  // [d_k]
    return {.q = d_q,
            .k = d[1].y,
            .v = d[1].v,
            .alpha_k = d[0].d.d,
            .values = {kappa.cwiseProduct(d[0].y), d[0].x + a.cwiseProduct(d[0].y)}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Vec<T> kappa = t["kappa"], a = t["a"];                                  // [d_k]
    const Vec<T> removed = S * kappa;                                             // [d_v]
    S = S * t.alpha_k.asDiagonal();                                               // [d_v x d_k]
    S += t.v * t.k.transpose() - removed * (a.asDiagonal() * kappa).transpose();  // [d_v x d_k]
    return S * t.q;                                                               // [d_v]
  }
};

}  // namespace delta
