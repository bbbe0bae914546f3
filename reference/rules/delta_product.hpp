// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "../core/rule.hpp"

namespace delta {

/// Gated DeltaProduct: one decay, then n_h delta steps with keys of their own, then the read-out.
/// \f[ S_t = \alpha_t S_{t-1} \prod_{j=1}^{n_h} (I - \beta_{t,j} k_{t,j} k_{t,j}^\top)
///     + \sum_{j=1}^{n_h} \beta_{t,j} v_{t,j} k_{t,j}^\top \prod_{i=j+1}^{n_h} (I - \beta_{t,i} k_{t,i} k_{t,i}^\top),
///     \qquad o_t = S_t q_t \f]
/// Products ascend. The first micro-step takes k, v, beta; the others the rows of `k_more`, `v_more`, `beta_more`.
/// The decay is applied once a token. n_h reflections reach any orthogonal map that moves at most n_h directions:
/// with \f$ k = e_i - e_j \f$ and beta = 1 a step swaps two channels exactly, and two steps a token turn three of
/// them round, which no single step can. n_h = 1 is `gated_delta`. A chunk of C tokens is a chunk of n_h C
/// micro-steps to every form.
/// \formula{C-delta-product}
/// \source{Siems et al. 2025, DeltaProduct, arXiv:2502.10297; its state is S^T}
/// \needs{+ - *}
struct delta_product {
  static constexpr Input inputs[] = {{.name = "k_more",
                                      .extent = Extent::d_k,
                                      .like = Like::key,
                                      .meaning = "keys of the micro-steps after the first",
                                      .more = true},
                                     {.name = "v_more",
                                      .extent = Extent::d_v,
                                      .like = Like::value,
                                      .meaning = "values of the micro-steps after the first",
                                      .more = true},
                                     {.name = "beta_more",
                                      .extent = Extent::one,
                                      .like = Like::beta,
                                      .meaning = "strengths of the micro-steps after the first",
                                      .more = true,
                                      .neutral = Neutral::one}};
  static constexpr std::string_view aliases[] = {"gated_delta_product", "gated_deltaproduct"};
  static constexpr RuleInfo info{
      .id = "delta_product",
      .title = "Gated DeltaProduct",
      .formula =
          R"(S_t = \alpha_t S_{t-1} \prod_j (I - \beta_{t,j} k_{t,j} k_{t,j}^\top) + \sum_j \beta_{t,j} v_{t,j} k_{t,j}^\top \prod_{i>j} (I - \beta_{t,i} k_{t,i} k_{t,i}^\top))",
      .label = "C-delta-product",
      .source = "arXiv:2502.10297; its state is S^T",
      .forget = Forget::per_head,
      .strength = Strength::per_head,
      .inputs = inputs,
      .aliases = aliases};

  template <Ring T> static Steps<T> steps(const Token<T>& t) {
    const Mat<T>&K = t["k_more"], &V = t["v_more"], &beta = t["beta_more"];  // [n_h - 1 x d_k], [.. x d_v], [.. x 1]
    Steps<T> steps{{.d = t.alpha, .x = t.k, .y = t.k, .v = t.v, .beta = t.beta}};
    for (Index j = 0; j < K.rows(); ++j) {
      const Vec<T> k = K.row(j), v = V.row(j);
      steps.push_back({.d = {}, .x = k, .y = k, .v = v, .beta = beta(j, 0)});
    }
    return steps;
  }

  template <Ring T> static Token<T> pullback(const Token<T>& t, const Steps<T>& d, const Vec<T>& d_q) {
    Mat<T> K = t["k_more"], V = t["v_more"], beta = t["beta_more"];  // [n_h - 1 x d_k], [.. x d_v], [.. x 1]
    for (Index j = 0; j < K.rows(); ++j) {
      const MicroStep<T>& s = d[j + 1];
      K.row(j) = (s.x + s.y).transpose(), V.row(j) = s.v.transpose(), beta(j, 0) = s.beta;
    }
    return {.q = d_q, .k = d[0].x + d[0].y, .v = d[0].v, .beta = d[0].beta, .alpha = d[0].d[0], .values = {K, V, beta}};
  }

  /// The two terms of the printed formula, each multiplied up from the left: what is kept and what is new.
  template <Ring T> static Vec<T> paper_step(Mat<T>& S, const Token<T>& t) {
    Mat<T> kept = t.alpha * S;                        // [d_v x d_k]
    Mat<T> added = Mat<T>::Zero(S.rows(), S.cols());  // [d_v x d_k]
    auto factor = [&](const Vec<T>& k, const Vec<T>& v, const T& beta) {
      kept -= beta * (kept * k) * k.transpose();
      added = added - beta * (added * k) * k.transpose() + beta * v * k.transpose();
    };
    factor(t.k, t.v, t.beta);
    for (Index j = 0; j < t["k_more"].rows(); ++j) factor(t["k_more"].row(j), t["v_more"].row(j), t["beta_more"](j, 0));
    S = kept + added;
    return S * t.q;  // [d_v]
  }
};

}  // namespace delta
