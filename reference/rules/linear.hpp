// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Linear attention: the state is the sum of all outer products.
/// \f[ S_t = S_{t-1} + v_t k_t^\top, \qquad o_t = S_t q_t \f]
/// k writes, q reads; nothing is predicted and nothing is forgotten. Orthonormal keys read back exactly. A key that
/// is written twice returns the sum of its values, and keys that are not orthogonal leak into each other: the delta
/// rule mends that. At most d_k keys are orthogonal, so a long sequence must collide: decay makes room. The source
/// has a feature map and a normaliser, \f$ o = S \phi(q) / (z \cdot \phi(q)) \f$; here k and q are what the map
/// returned.
/// \formula{F03} \formula{F04}
/// \source{Katharopoulos, Vyas, Pappas, Fleuret 2020, arXiv:2006.16236}
/// \needs{+ *}
struct linear {
  static constexpr std::string_view aliases[] = {"linear_attention", "linear_attn"};
  static constexpr RuleInfo info{.id = "linear",
                                 .title = "Linear attention",
                                 .formula = R"(S_t = S_{t-1} + v_t k_t^\top)",
                                 .label = "F03",
                                 .source = "arXiv:2006.16236, without feature map and normaliser",
                                 .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    return {{.d = {}, .x = Vec<T>::Zero(t.k.size()), .y = t.k, .v = t.v}};
  }

  template <Ring T> static Token<T> pullback(const Token<T>&, const Steps<T>& d, const Vec<T>& d_q) {
    return {.q = d_q, .k = d[0].y, .v = d[0].v};
  }

  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    S += t.v * t.k.transpose();  // [d_v x d_k]
    return S * t.q;              // [d_v]
  }
};

}  // namespace delta
