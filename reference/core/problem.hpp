// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "micro_step.hpp"
#include "rule.hpp"
#include "token.hpp"

namespace delta {

/// The sizes of a problem. Value head j uses key head j / (HV / H). With `offsets` (cu_seqlens) the B = 1 row of T
/// tokens is packed: sequence n owns tokens offsets[n] .. offsets[n+1] - 1; tokens beyond the last offset are slack.
struct Shape {
  Index B = 1, T = 1, H = 1, HV = 1, d_k = 1, d_v = 1;
  Index n_h = 1;               ///< micro-steps with inputs of their own per token, for rules that take `more` rows
  std::vector<Index> offsets;  ///< empty: not packed

  Index sequences() const { return offsets.empty() ? B : static_cast<Index>(offsets.size()) - 1; }
  Index batch(Index n) const { return offsets.empty() ? n : 0; }
  Index begin(Index n) const { return offsets.empty() ? 0 : offsets[n]; }
  Index end(Index n) const { return offsets.empty() ? T : offsets[n + 1]; }
  Index length(Index n) const { return end(n) - begin(n); }
  Index key_head(Index j) const { return j / (HV / H); }
  Index width(Extent e) const { return e == Extent::d_k ? d_k : e == Extent::d_v ? d_v : 1; }

  std::string text() const {
    auto part = [](const char* name, Index n) { return name + std::to_string(n); };
    std::string s = part("B", B) + part("_T", T) + part("_H", H) + part("_HV", HV) + part("_K", d_k) + part("_V", d_v);
    if (n_h > 1) s += part("_N", n_h);
    for (const Index& o : offsets) s += part(&o == offsets.data() ? "_packed" : ".", o);
    return s;
  }
};

/// A tensor [B, T, heads, rows, cols], the last axis contiguous. Empty: not given, its neutral value holds.
template <Ring T> struct Tensor {
  Index B = 0, tokens = 0, heads = 0, rows = 1, cols = 0;
  std::vector<T> data;

  Tensor() = default;
  Tensor(Index b, Index t, Index h, Index c, Index r = 1)
      : B(b), tokens(t), heads(h), rows(r), cols(c), data(static_cast<std::size_t>(b * t * h * r * c), T(0)) {}

  bool empty() const { return cols == 0; }
  T* at(Index b, Index t, Index h) { return data.data() + ((b * tokens + t) * heads + h) * rows * cols; }
  const T* at(Index b, Index t, Index h) const { return data.data() + ((b * tokens + t) * heads + h) * rows * cols; }
  Vec<T> row(Index b, Index t, Index h) const { return Eigen::Map<const Vec<T>>(at(b, t, h), rows * cols); }

  template <Ring U, class F> Tensor<U> map(F f) const {
    Tensor<U> out(B, tokens, heads, cols, rows);
    for (std::size_t i = 0; i < data.size(); ++i) out.data[i] = f(data[i]);
    return out;
  }
};

/// All the inputs of one call of a kernel.
template <Ring T> struct Problem {
  Shape shape;
  Tensor<T> q, k;    ///< [B, T, H, d_k]
  Tensor<T> v;       ///< [B, T, HV, d_v]
  Tensor<T> beta;    ///< [B, T, HV] or [B, T, HV, d_v]; empty: 1
  Tensor<T> alpha;   ///< [B, T, HV] or [B, T, HV, d_k], the decay itself; empty: 1
  Tensor<T> lambda;  ///< [B, T, HV]; empty: 0
  /// The rule's further inputs, in its order: [B, T, HV, extent] or [B, T, HV, n_h - 1, extent].
  std::vector<Tensor<T>> inputs;
  std::vector<Mat<T>> S0;  ///< [N * HV] of [d_v x d_k]; empty: 0
  T scale = T(1);          ///< multiplies q in the read-out only
  /// eps, where q and k are still to be brought to unit length. No form does that: it needs a root.
  std::optional<T> l2norm = {};

  /// Token t of sequence n as value head j sees it.
  Token<T> token(const RuleInfo& rule, Index n, Index j, Index t) const {
    const Index b = shape.batch(n), s = shape.begin(n) + t, h = shape.key_head(j);
    Token<T> x{.q = q.row(b, s, h), .k = k.row(b, s, h), .v = v.row(b, s, j), .names = rule.inputs};
    if (!beta.empty()) x.beta = *beta.at(b, s, j);
    if (!alpha.empty()) x.alpha = *alpha.at(b, s, j);
    if (!lambda.empty()) x.lambda = *lambda.at(b, s, j);
    // One number where the rule takes one per channel is the same number in every channel.
    if (rule.strength == Strength::per_value)
      x.beta_v = beta.cols == shape.d_v ? beta.row(b, s, j) : Vec<T>::Constant(shape.d_v, x.beta);
    if (rule.forget == Forget::per_channel)
      x.alpha_k = alpha.cols == shape.d_k ? alpha.row(b, s, j) : Vec<T>::Constant(shape.d_k, x.alpha);
    for (std::size_t i = 0; i < rule.inputs.size(); ++i)
      x.values.push_back(i < inputs.size() && !inputs[i].empty() ? given(rule.inputs[i], inputs[i], b, s, j)
                                                                 : neutral(rule.inputs[i], x));
    return x;
  }

  /// One token of a further input: [extent x 1], or [n_h - 1 x extent] where there is a row for each micro-step.
  static Mat<T> given(const Input& input, const Tensor<T>& values, Index b, Index s, Index j) {
    using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Eigen::Map<const RowMajor> m(values.at(b, s, j), values.rows, values.cols);
    return input.more ? Mat<T>(m) : Mat<T>(m.transpose());
  }

  /// What stands in for it where the problem does not give it.
  Mat<T> neutral(const Input& input, const Token<T>& x) const {
    if (input.neutral == Neutral::key) return x.k;
    const Index width = shape.width(input.extent);
    return Mat<T>::Constant(input.more ? shape.n_h - 1 : width, input.more ? width : 1,
                            T(input.neutral == Neutral::one ? 1 : 0));
  }

  Mat<T> initial_state(Index n, Index j) const {
    return S0.empty() ? Mat<T>(Mat<T>::Zero(shape.d_v, shape.d_k)) : S0[static_cast<std::size_t>(n * shape.HV + j)];
  }

  /// The same problem over another scalar.
  template <Ring U, class F> Problem<U> map(F f) const {
    Problem<U> out{.shape = shape,
                   .q = q.template map<U>(f),
                   .k = k.template map<U>(f),
                   .v = v.template map<U>(f),
                   .beta = beta.template map<U>(f),
                   .alpha = alpha.template map<U>(f),
                   .lambda = lambda.template map<U>(f),
                   .inputs = {},
                   .S0 = {},
                   .scale = f(scale)};
    if (l2norm) out.l2norm = f(*l2norm);
    for (const auto& i : inputs) out.inputs.push_back(i.template map<U>(f));
    for (const auto& S : S0) out.S0.push_back(S.unaryExpr(f).template cast<U>());
    return out;
  }
};

/// What a call returns: one output per value head of each sequence, lane n * HV + j.
template <Ring T> using Result = std::vector<Output<T>>;

}  // namespace delta
