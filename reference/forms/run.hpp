// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <array>
#include <functional>

#include "../core/problem.hpp"
#include "chunkwise.hpp"
#include "one_solve.hpp"
#include "parallel.hpp"
#include "recurrent.hpp"
#include "scan.hpp"

namespace delta {

/// A rule over one scalar, with its type forgotten: what `run` needs of it.
template <Ring T> struct RuleOps {
  Steps<T> (*steps)(const Token<T>&);
  Vec<T> (*read)(const Token<T>&);
  Vec<T> (*paper_step)(Mat<T>&, const Token<T>&);  ///< edits S_{t-1} into S_t and returns S_t's read-out, unscaled
  Pullback<T> pullback;                            ///< nullptr: the rule has no gradients
};

template <class R, Ring T>
requires RuleOver<R, T>
constexpr RuleOps<T> ops() {
  return {&R::template steps<T>, &read_of<R, T>, &R::template paper_step<T>, pullback_of<R, T>()};
}

/// A way to compute any rule. C is the chunk length, for those that have one.
template <Ring T> struct Form {
  std::string_view id;
  Output<T> (*run)(const Stream<T>&, Index C);
  bool chunked = false;
  bool (*applies)(const Stream<T>&) = nullptr;        ///< nullptr: to every stream
  Index (*largest)(Index tokens, Index C) = nullptr;  ///< side of its largest square matrix; nullptr: none that grows
};

/// \cond
inline Index whole_sequence(Index tokens, Index) { return tokens; }
inline Index one_chunk(Index tokens, Index C) { return std::min(tokens, C); }
/// \endcond

template <Ring T>
inline constexpr std::array kForms{
    Form<T>{.id = "recurrent", .run = [](const Stream<T>& s, Index) { return recurrent<T>(s); }},
    Form<T>{.id = "chunkwise",
            .run = [](const Stream<T>& s, Index C) { return chunkwise<T>(s, C); },
            .chunked = true,
            .applies = &chunkwise_applies<T>,
            .largest = &one_chunk},
    Form<T>{.id = "one_solve",
            .run = [](const Stream<T>& s, Index C) { return one_solve<T>(s, C); },
            .chunked = true,
            .largest = &one_chunk},
    Form<T>{
        .id = "parallel", .run = [](const Stream<T>& s, Index) { return parallel<T>(s); }, .largest = &whole_sequence},
    Form<T>{.id = "scan", .run = [](const Stream<T>& s, Index C) { return scan<T>(s, C); }, .chunked = true},
};

/// Token t as one stream sees it. With a strength per value channel, row c of the state obeys a rule of its own with
/// d_v = 1: `channel` is that c.
template <Ring T> Token<T> token(const RuleInfo& rule, const Problem<T>& p, Index n, Index j, Index t, Index channel) {
  Token<T> x = p.token(rule, n, j, t);
  if (channel >= 0) {
    x.beta = x.beta_v[channel];
    x.v = Vec<T>(x.v.segment(channel, 1));
  }
  return x;
}

/// The stream of value head j in sequence n, or of one row of its state where the strength is per value channel.
template <Ring T>
Stream<T> stream(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p, Index n, Index j, Index channel = -1) {
  Stream<T> s;
  const Index length = p.shape.length(n);
  s.S0 = p.initial_state(n, j);
  if (channel >= 0) s.S0 = Mat<T>(s.S0.row(channel));
  s.Q.resize(length, p.shape.d_k);
  for (Index t = 0; t < length; ++t) {
    const Token<T> x = token(rule, p, n, j, t, channel);
    Steps<T> steps = f.steps(x);
    s.m = static_cast<Index>(steps.size());
    std::ranges::move(steps, std::back_inserter(s.steps));
    s.Q.row(t) = p.scale * f.read(x).transpose();
  }
  return s;
}

/// Calls use(stream, channel) with each recurrence of a lane: one that holds the whole state (channel -1), or, where
/// the strength is per value channel, one for each row of it.
template <Ring T, class F>
void each_stream(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p, Index n, Index j, F use) {
  if (rule.strength != Strength::per_value) return use(stream(rule, f, p, n, j), Index{-1});
  for (Index c = 0; c < p.shape.d_v; ++c) use(stream(rule, f, p, n, j, c), c);
}

/// Puts what such a recurrence returned where it belongs in its lane.
template <Ring T> void place(Output<T>& lane, const Output<T>& part, Index channel) {
  lane.O.middleCols(std::max<Index>(channel, 0), part.O.cols()) = part.O;
  lane.S.middleRows(std::max<Index>(channel, 0), part.S.rows()) = part.S;
}

/// Any rule, any form, any problem: every head of every sequence.
template <Ring T>
Result<T> run(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p,
              const std::function<Output<T>(const Stream<T>&)>& form) {
  Result<T> out;
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j) {
      Output<T> lane{Mat<T>(p.shape.length(n), p.shape.d_v), Mat<T>(p.shape.d_v, p.shape.d_k)};
      each_stream(rule, f, p, n, j, [&](const Stream<T>& s, Index channel) { place(lane, form(s), channel); });
      out.push_back(std::move(lane));
    }
  return out;
}

/// The same by the formula as the source prints it: the root of every comparison.
template <Ring T> Result<T> run_paper(const RuleInfo& rule, const RuleOps<T>& f, const Problem<T>& p) {
  Result<T> out;
  for (Index n = 0; n < p.shape.sequences(); ++n)
    for (Index j = 0; j < p.shape.HV; ++j) {
      Output<T> lane{Mat<T>(p.shape.length(n), p.shape.d_v), p.initial_state(n, j)};
      for (Index t = 0; t < p.shape.length(n); ++t)
        lane.O.row(t) = p.scale * f.paper_step(lane.S, p.token(rule, n, j, t)).transpose();
      out.push_back(std::move(lane));
    }
  return out;
}

}  // namespace delta
