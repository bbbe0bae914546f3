// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

#include "../forms/run.hpp"
#include "recurrent_adjoint.hpp"

namespace delta {

/// The adjoint of a form: from dO [T x d_v] and the gradient dS [d_v x d_k] with respect to the final state, that with
/// respect to the stream.
template <Ring T>
using AdjointForm = std::function<StreamAdjoint<T>(const Stream<T>&, const Mat<T>& dO, const Mat<T>& dS)>;

/// Adds `part` to one token of a tensor of gradients, row-major and from column `first` on. A number that the rule
/// spread over all channels gathers from all of them; a tensor that was not given takes nothing.
template <Ring T> void add(Tensor<T>& to, Index b, Index t, Index h, Index first, const Mat<T>& part) {
  using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  if (to.empty()) return;
  if (to.rows * to.cols == 1)
    *to.at(b, t, h) += part.sum();
  else
    Eigen::Map<RowMajor>(to.at(b, t, h) + first, part.rows(), part.cols()) += part;
}

/// The gradient of sum <dO, O> + <dS, S> over all lanes with respect to every tensor of a problem: it has the problem's
/// shapes, and so its type. Value heads that share a key head add up there. A tensor that was not given has none; S0
/// always has one, [N * HV] of [d_v x d_k].
/// \param d  dO and dS of each lane, in the order of `run`
/// \pre f.pullback is not null
template <Ring T>
Problem<T> gradient(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p, const Result<T>& d,
                    const AdjointForm<T>& adjoint_of) {
  Problem<T> g = p.template map<T>([](const T&) { return T(0); });
  g.S0.clear();
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j) {
      const Output<T>& lane = d[g.S0.size()];
      Mat<T> dS0(p.shape.d_v, p.shape.d_k);
      each_stream(rule, f, p, n, j, [&](const Stream<T>& s, Index channel) {
        const Index r = std::max<Index>(channel, 0), rows = s.d_v();  // of the lane's state, in this stream
        const StreamAdjoint<T> a = adjoint_of(s, lane.O.middleCols(r, rows), lane.S.middleRows(r, rows));
        dS0.middleRows(r, rows) = a.S0;
        for (Index t = 0; t < s.tokens(); ++t) {
          const Steps<T> d_steps(a.steps.begin() + s.m * t, a.steps.begin() + s.m * (t + 1));
          const Vec<T> d_read = p.scale * a.Q.row(t).transpose();  // [d_k]
          const Token<T> x = f.pullback(token(rule, p, n, j, t, channel), d_steps, d_read);
          const Index b = p.shape.batch(n), at = p.shape.begin(n) + t, h = p.shape.key_head(j);
          auto number = [](const T& a) { return Mat<T>(Mat<T>::Constant(1, 1, a)); };
          add<T>(g.q, b, at, h, 0, x.q);
          add<T>(g.k, b, at, h, 0, x.k);
          add<T>(g.v, b, at, j, r, x.v);
          add<T>(g.beta, b, at, j, r, number(x.beta));
          add<T>(g.alpha, b, at, j, 0, rule.forget == Forget::per_channel ? Mat<T>(x.alpha_k) : number(x.alpha));
          add<T>(g.lambda, b, at, j, 0, number(x.lambda));
          for (std::size_t i = 0; i < rule.inputs.size(); ++i)
            if (i < g.inputs.size() && !g.inputs[i].empty())
              add<T>(g.inputs[i], b, at, j, 0, x.values.at(i));
            else if (rule.inputs[i].neutral == Neutral::key)  // k stood in for it
              add<T>(g.k, b, at, h, 0, x.values.at(i));
        }
      });
      g.S0.push_back(std::move(dS0));
    }
  return g;
}

/// The same through the adjoint of the recurrence.
template <Ring T>
Problem<T> gradient(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p, const Result<T>& d) {
  return gradient<T>(rule, f, p, d, [](const Stream<T>& s, const Mat<T>& dO, const Mat<T>& dS) {
    return recurrent_adjoint<T>(s, dO, dS);
  });
}

}  // namespace delta
