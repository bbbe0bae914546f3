// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Read once: the delta rule, after which the memory gives up a share of what lies under the query.
/// \f[ \hat S_t = S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad
///     S_t = \hat S_t (I - \rho_t q_t q_t^\top), \qquad o_t = S_t q_t \f]
/// rho = 0 is the delta rule. The answer is read from what is left.
/// \formula{C-read-once}  \source{the example of CONTRIBUTING.md}  \needs{+ - *}
struct read_once {
  static constexpr Input inputs[] = {
      {.name = "rho", .extent = Extent::one, .like = Like::gate, .meaning = "share given up under the query"}};
  static constexpr RuleInfo info{
      .id = "read_once",
      .title = "Read once",
      .formula = R"(S_t = (S_{t-1}(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top)(I - \rho_t q_t q_t^\top))",
      .label = "C-read-once",
      .source = "the example of CONTRIBUTING.md",
      .strength = Strength::per_head,
      .inputs = inputs};

  /// Two micro-steps: correct along the key, then correct towards zero along the query.
  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.x = t.k, .y = t.k, .v = t.v, .beta = t.beta},
            {.x = t.q, .y = t.q, .v = Vec<T>::Zero(t.v.size()), .beta = t["rho"](0, 0)}};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    const Mat<T> I = Mat<T>::Identity(S.cols(), S.cols());                          // [d_k x d_k]
    S = S * (I - t.beta * t.k * t.k.transpose()) + t.beta * t.v * t.k.transpose();  // [d_v x d_k]
    S = S * (I - t["rho"](0, 0) * t.q * t.q.transpose());                           // [d_v x d_k]
    return S * t.q;                                                                 // [d_v]
  }
};

}  // namespace delta
