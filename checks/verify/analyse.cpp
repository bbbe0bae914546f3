// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/analyse.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "checks/core/parallel_for.hpp"

namespace delta {
namespace {

/// The bound on the norm of one step, and whether it holds for every q and k of these lengths.
struct Bound {
  double value;
  bool every_vector;
};

Bound bound_of(const RuleInfo& info, const Token<double>& t, const MicroStep<double>& s, double norm) {
  const double decay = s.d.none() ? 1 : s.d.d.cwiseAbs().maxCoeff();
  if (info.lambda) {  // reads k + lambda q: only the lengths of k and q and the angle between them matter
    const double k2 = t.k.squaredNorm(), share = k2 > 0 ? t.lambda * t.q.norm() / std::sqrt(k2) : 0;
    return {decay * sharp_growth(t.beta * k2, share), true};
  }
  const double a = s.x.dot(s.y);
  if (a * a < (1 - 1e-12) * s.x.squaredNorm() * s.y.squaredNorm()) return {norm, false};
  if (s.d.scalar()) return {norm, true};  // symmetric: the direction of the key does not matter
  return s.pre_decay ? Bound{norm, false} : Bound{decay * std::max(1., std::abs(1 - s.beta * a)), true};
}

HeadAnalysis summary(const AnalysisSeries& s, Index n, Index j, Index m) {
  const auto token = [m](std::size_t step) { return static_cast<Index>(step) / m; };
  HeadAnalysis h{.sequence = n, .head = j, .every_vector = s.every_vector, .growth = s.growth, .search = s.search};
  const auto [least, largest] = std::ranges::minmax(s.factor);
  h.least_factor = least, h.largest_factor = largest;
  const auto norm = std::ranges::max_element(s.norm);
  h.norm = *norm, h.norm_at = token(static_cast<std::size_t>(norm - s.norm.begin()));
  h.certificate = certificate(s.bound);
  h.certificate.fails_at = static_cast<std::size_t>(token(h.certificate.fails_at));
  h.certificate.worst = static_cast<std::size_t>(token(h.certificate.worst));
  const auto worse = [](const InverseGrowth& a, const InverseGrowth& b) { return a.condition < b.condition; };
  const auto inverse = std::ranges::max_element(s.inverse, worse);
  h.inverse = *inverse, h.chunk = inverse - s.inverse.begin();
  return h;
}

}  // namespace

AnalysisSeries analysis_series(const Subject& subject, Index n, Index j, Index chunk_length) {
  const RuleInfo& info = subject.rule().info;
  const Problem<double> p = subject.lane<double>(n, j);
  AnalysisSeries worst;
  double worst_norm = -1;
  each_stream<double>(subject.rule(), p, [&](const Stream<double>& stream, Index) {
    StreamAnalysis a = analyse(stream, chunk_length);
    const double largest = a.norm.empty() ? 0 : *std::ranges::max_element(a.norm);
    if (!(largest > worst_norm)) return;
    worst_norm = largest;
    worst = {.factor = std::move(a.factor),
             .norm = std::move(a.norm),
             .inverse = std::move(a.inverse),
             .growth = a.growth,
             .search = a.search};
    for (std::size_t i = 0; i < stream.steps.size(); ++i) {
      const Token<double> t = p.token(info, 0, 0, static_cast<Index>(i) / stream.m);
      const Bound b = bound_of(info, t, stream.steps[i], worst.norm[i]);
      worst.bound.push_back(b.value);
      worst.every_vector = worst.every_vector && b.every_vector;
    }
  });
  return worst;
}

Analysis analyse(const Dump& dump, const DumpOptions& options, int threads) {
  const Subject s(dump, options);
  Analysis a;
  std::vector<HeadAnalysis> heads(static_cast<std::size_t>(s.lanes()));
  std::vector<Index> micro_steps(heads.size(), 0);
  parallel_for(s.lanes(), threads, [&](Index lane) {
    const Index n = lane / s.shape().HV, j = lane % s.shape().HV, T = s.shape().length(n);
    const AnalysisSeries series = analysis_series(s, n, j, a.chunk_length);
    const Index m = T > 0 ? static_cast<Index>(series.norm.size()) / T : 0;
    micro_steps[static_cast<std::size_t>(lane)] = m;
    if (m > 0) heads[static_cast<std::size_t>(lane)] = summary(series, n, j, m);
  });
  for (std::size_t lane = 0; lane < heads.size(); ++lane)
    if (micro_steps[lane] > 0) a.heads.push_back(heads[lane]), a.micro_steps = micro_steps[lane];
  std::ranges::stable_sort(a.heads, [](const HeadAnalysis& x, const HeadAnalysis& y) {
    const auto badness = [](const HeadAnalysis& h) {
      return std::tuple(h.certificate.holds, -std::round(1e6 * h.certificate.largest), -h.inverse.condition);
    };
    return badness(x) < badness(y);
  });
  if (!a.heads.empty()) a.series = analysis_series(s, a.heads[0].sequence, a.heads[0].head, a.chunk_length);
  return a;
}

}  // namespace delta
