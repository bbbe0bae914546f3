// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// The gated delta rule: forget, then correct the value stored under the key.
/// \f[ S_t = \alpha_t S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// The prediction is read from the decayed state, and the value that is written is not decayed.
/// \formula{F48}  \source{Yang, Kautz, Hatamizadeh 2024, Gated Delta Networks, arXiv:2412.06464, Eq. 10}  \needs{+ - *}
struct gated_delta {
  static constexpr std::string_view aliases[] = {"gdn", "gated_deltanet"};
  static constexpr RuleInfo info{
      .id = "gated_delta",
      .title = "Gated DeltaNet",
      .formula = R"(S_t = \alpha_t S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top)",
      .label = "F48",
      .source = "arXiv:2412.06464, Eq. 10",
      .forget = Forget::per_head,
      .strength = Strength::per_head,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = t.alpha, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Mat<T> I = Mat<T>::Identity(S.cols(), S.cols());
    S = t.alpha * S * (I - t.beta * t.k * t.k.transpose()) + t.beta * t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;                                                                           // [d_v]
  }
};

}  // namespace delta
