// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "checks/core/errors.hpp"
#include "checks/core/ratio.hpp"
#include "reference/core/problem.hpp"
#include "reference/scalars/convert.hpp"

namespace delta {

/// One element of an output.
struct Place {
  std::string_view tensor;    ///< "o" or "final_state"
  std::size_t lane = 0;       ///< n * HV + j: value head j of sequence n
  Index row = 0, column = 0;  ///< token and channel of o; row and column of a state
  double want = 0, got = 0;
};

/// How far a result is from the exact one, the worst lane deciding (a lane is one head of one sequence).
///   o      max_t |o_t - o*_t|_2 / max_t |o*_t|_2
///   state  |S - S*|_F / |S*|_F
/// 0/0 is 0, x/0 is infinite, and whatever is not finite makes the error infinite.
struct Distance : Errors {
  bool all_zero = true;            ///< the exact result is zero everywhere: nothing was tested
  std::optional<Place> worst;      ///< the element with the largest error against the size of its lane
  std::optional<Place> first_bad;  ///< the first token of o, in its first bad lane, whose error is beyond `limit`
};

/// got - want in the wider scalar; NaN where `got` is not finite.
template <Real J, Real T> Mat<double> error_matrix(const Mat<J>& want, const Mat<T>& got) {
  Mat<double> E(want.rows(), want.cols());
  for (Index c = 0; c < E.cols(); ++c)
    for (Index r = 0; r < E.rows(); ++r)
      E(r, c) = std::isfinite(Scalar<T>::to_double(got(r, c)))
                    ? Scalar<J>::to_double(J(convert<J>(got(r, c)) - want(r, c)))
                    : NAN;
  return E;
}

/// \pre same lanes, same shapes   \param limit  on the error of one token, against the largest token of its lane
/// \tparam J the scalar that judges, at least as wide as the one judged
template <Real J, Real T> Distance distance(const Result<J>& want, const Result<T>& got, double limit = INFINITY) {
  Distance d;
  double worst = 0;
  auto measure = [&](std::string_view tensor, std::size_t lane, const Mat<J>& W, const Mat<T>& G, Measure how) {
    const Mat<double> w = W.unaryExpr([](const J&x) { return Scalar<J>::to_double(x); }), e = error_matrix<J, T>(W, G);
    const double all = norm_of(w, how);
    d.all_zero = d.all_zero && all == 0;
    for (Index r = 0; r < e.rows() && e.cols() > 0; ++r) {
      const Index c = furthest(e, r);
      const Place place{tensor, lane, r, c, w(r, c), Scalar<T>::to_double(G(r, c))};
      const double element = relative(std::abs(e(r, c)), all), row = relative(e.row(r).stableNorm(), all);
      if (element > worst) worst = element, d.worst = place;
      if (how == Measure::worst_row && !d.first_bad && (row > limit || std::isinf(row))) d.first_bad = place;
    }
    return relative_error(w, e, how);
  };
  for (std::size_t lane = 0; lane < want.size(); ++lane)
    raise(d, {measure("o", lane, want[lane].O, got[lane].O, Measure::worst_row),
              measure("final_state", lane, want[lane].S, got[lane].S, Measure::whole)});
  return d;
}

/// What correct code in that precision makes of the two errors of `Distance`: the E of the ratios.
using Expected = Errors;

/// What a comparison found: the worst ratio, which one it is, and the verdict.
struct Comparison {
  Verdict verdict = Verdict::failed;
  double ratio = INFINITY;
  Ratio which = kOutput;
  std::string reason;  ///< why it is not trusted, or what is wrong
  Distance distance;
};

/// Where the shapes differ; empty if they agree.
template <Ring J, Ring T> std::string mismatch(const Result<J>& want, const Result<T>& got) {
  auto shape = [](const auto& A) { return "[" + std::to_string(A.rows()) + " x " + std::to_string(A.cols()) + "]"; };
  auto differ = [](const auto& A, const auto& B) { return A.rows() != B.rows() || A.cols() != B.cols(); };
  if (want.size() != got.size()) return std::to_string(got.size()) + " lanes, expected " + std::to_string(want.size());
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (differ(want[n].O, got[n].O))
      return "o of lane " + std::to_string(n) + " is " + shape(got[n].O) + ", expected " + shape(want[n].O);
    if (differ(want[n].S, got[n].S))
      return "final_state of lane " + std::to_string(n) + " is " + shape(got[n].S) + ", expected " + shape(want[n].S);
  }
  return {};
}

/// Whether a reference and a candidate have any memory in common: such a comparison compares a result with itself.
template <Ring J, Ring T> bool share_storage(const Result<J>& want, const Result<T>& got) {
  using Range = std::pair<const char*, const char*>;
  auto ranges = [](const auto& result) {
    std::vector<Range> out;
    auto add = [&](const auto& A) {
      if (A.size() == 0) return;
      const auto begin = reinterpret_cast<const char*>(A.data());
      out.emplace_back(begin, begin + static_cast<std::size_t>(A.size()) * sizeof(*A.data()));
    };
    for (const auto& lane : result) add(lane.O), add(lane.S);
    return out;
  };
  for (const Range& a : ranges(want))
    for (const Range& b : ranges(got))
      if (std::less<>()(a.first, b.second) && std::less<>()(b.first, a.second)) return true;
  return false;
}

/// Judges a result against the exact one: R1 and R3, the larger one deciding.
template <Real J, Real T> Comparison compare(const Result<J>& want, const Result<T>& got, const Expected& e) {
  Comparison c;
  if (c.reason = mismatch(want, got); !c.reason.empty()) return c;
  auto untrusted = [&](std::string why) {
    c.verdict = Verdict::untrusted, c.ratio = NAN, c.reason = std::move(why);
    return c;
  };
  if (want.empty()) return untrusted("nothing to compare");
  if (share_storage(want, got)) return untrusted("the reference and the candidate share storage");
  c.distance = distance(want, got, kFailed * e.o);
  if (c.distance.all_zero && c.distance.o == 0 && c.distance.state == 0) return untrusted("the exact result is zero");
  const double o = ratio_of(c.distance.o, e.o), state = ratio_of(c.distance.state, e.state);
  c.which = o >= state ? kOutput : kState;
  c.ratio = std::max(o, state);
  c.verdict = judge(c.ratio);
  if (c.verdict == Verdict::failed) c.reason = std::string(c.which.id) + ", " + std::string(c.which.meaning);
  return c;
}

}  // namespace delta
