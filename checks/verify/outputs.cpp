// SPDX-License-Identifier: Apache-2.0
// o and the final state against the recurrence in double, and what correct code makes of them.
#include <algorithm>
#include <cmath>

#include "checks/verify/lanes.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

/// Draws of what correct code makes with operands of a format. Kernels differ in chunk length, in how they solve, in
/// the type that they keep the inverse in and in how their roundings fall; an error within twice the largest of these
/// is nobody's mistake. Odd chunk lengths move the end of the sequence within its chunk, where the final state is made.
std::vector<Schedule> schedules(const Format& operand, std::size_t draws) {
  struct Kind {
    Index C;
    bool one_solve;
    Format inverse;
    bool decay_on_key = false;
  };
  const bool narrow = operand.p < kFp32.p;
  // Whether the key or the correction decays is one relative rounding or another, as long as neither leaves the range
  // of the format. In fp16 a small key does, and loses digits that the correction keeps.
  const bool short_range = operand.emin > kFp32.emin;
  const Format &f = operand, &inverse = narrow ? kFp16 : operand;
  const Kind kinds[] = {{64, false, f},       {0, false, f}, {64, true, inverse, short_range},
                        {16, false, f},       {48, true, f}, {128, true, f, short_range},
                        {32, false, inverse}, {64, true, f}, {96, false, f, short_range},
                        {24, true, f}};
  Schedule how{.operand = f, .state = narrow ? kFp32 : f};
  std::vector<Schedule> all;
  for (std::size_t i = 0; i < draws; ++i) {
    const Kind& kind = kinds[i % std::size(kinds)];
    how.C = kind.C, how.one_solve = kind.one_solve, how.inverse = kind.inverse, how.decay_on_key = kind.decay_on_key;
    all.push_back(how);
    // The golden section spreads any number of stretches over [1, 2).
    how.stretch = 1 + std::fmod(0.6180339887 * static_cast<double>(i + 1), 1.0);
  }
  return all;
}

Output<double> sized(const Shape& z, Index length) {
  return {Mat<double>::Zero(length, z.d_v), Mat<double>::Zero(z.d_v, z.d_k)};
}

/// The reference in double-double, returned in double.
Output<double> exact_lane(const Subject& s, Index n, Index j) {
  Output<double> out = sized(s.shape(), s.shape().length(n));
  auto narrow = [](const DoubleDouble& x) { return x.hi; };
  each_stream<DoubleDouble>(s.rule(), s.lane<DoubleDouble>(n, j), [&](const Stream<DoubleDouble>& st, Index channel) {
    const Output<DoubleDouble> o = recurrent<DoubleDouble>(st);
    place(out, {s.scale() * o.O.unaryExpr(narrow).cast<double>(), o.S.unaryExpr(narrow).cast<double>()}, channel);
  });
  return out;
}

}  // namespace

Plan plan_for(const Subject& s) {
  const Shape& z = s.shape();
  Plan plan{.subject = s, .draws = {}, .more = {}, .wide = s.operands().p >= kFp64.p};
  // Work in multiply-adds of one pass: small problems are drawn more often, and judged twice in every lane.
  double work = 0;
  for (Index n = 0; n < z.sequences(); ++n)
    work += static_cast<double>(z.length(n)) * static_cast<double>(z.HV * z.d_k * z.d_v);
  plan.draws = schedules(s.operands(), work > 1e8 ? 4 : work > 1e6 ? 10 : work > 1e5 ? 20 : 40);
  if (work <= 1e6) {
    plan.more = schedules(s.operands(), 10 * plan.draws.size());
    plan.more.erase(plan.more.begin(), plan.more.begin() + static_cast<std::ptrdiff_t>(plan.draws.size()));
  }
  plan.certify_all = plan.wide || work < 2e7;
  return plan;
}

/// The lane as a kernel of fp32 operands takes it that normalises q and k itself: sum, root and quotient are rounded,
/// and where q . k cancels that is most of the error.
Problem<double> normalised_in_float(const Subject& s, Index n, Index j) {
  Problem<double> p = s.lane<double>(n, j, {.norm = Norm::missing});
  for (Tensor<double>* x : {&p.q, &p.k}) {
    const auto width = static_cast<std::size_t>(x->rows * x->cols);
    for (std::size_t first = 0; first < x->data.size(); first += width) {
      float sum = 0;
      for (std::size_t i = first; i < first + width; ++i) sum += static_cast<float>(x->data[i] * x->data[i]);
      const float factor = 1 / std::sqrt(sum + static_cast<float>(*s.l2norm()));
      for (std::size_t i = first; i < first + width; ++i) x->data[i] = static_cast<float>(x->data[i]) * factor;
    }
  }
  return p;
}

Evidence judge_outputs(const Plan& plan, Index n, Index j, bool certify) {
  const Subject& s = plan.subject;
  const Shape& z = s.shape();
  const Output<double> blank = sized(z, z.length(n)), got = s.candidate(n, j);
  Output<double> want = blank, chunks = blank, tf32 = blank;
  std::vector<Output<double>> draws(plan.draws.size(), blank);
  const bool fp32 = s.operands().p == kFp32.p, by_chunks = certify && !plan.certify_all;

  each_stream<double>(s.rule(), s.lane<double>(n, j), [&](const Stream<double>& st, Index channel) {
    const Output<double> o = recurrent<double>(st);
    place(want, {s.scale() * o.O, o.S}, channel);
    if (fp32) place(tf32, simulate<float>(st, s.scale(), {.operand = kTf32, .inverse = kTf32}), channel);
    if (by_chunks)
      place(chunks, simulate<double>(st, s.scale(), {.operand = kFp64, .inverse = kFp64, .state = kFp64}), channel);
  });

  const bool normalises = s.l2norm() && fp32;
  each_stream<double>(s.rule(), normalises ? normalised_in_float(s, n, j) : s.lane<double>(n, j),
                      [&](const Stream<double>& st, Index channel) {
                        for (std::size_t i = 0; i < draws.size(); ++i)
                          place(draws[i],
                                plan.wide ? simulate<double>(st, s.scale(), plan.draws[i])
                                          : simulate<float>(st, s.scale(), plan.draws[i]),
                                channel);
                      });

  Errors reference;
  if (certify) {
    Output<double> other = plan.certify_all ? exact_lane(s, n, j) : std::move(chunks);
    reference = errors(other, want);
    if (plan.wide) {  // the sums are good to twice 53 bits and decays to 64; what is left is the rounding to double
      want = std::move(other);
      reference = {kFp64.unit(), kFp64.unit()};
    }
  }

  const Format &of_o = s.format_of("o"), &of_state = s.has_final_state() ? s.format_of("final_state") : kFp32;
  Errors expected{last_rounding(of_o, plan.wide), last_rounding(of_state, plan.wide)};
  const auto store = [&](const Output<double>& x) { return Output<double>{stored(x.O, of_o), stored(x.S, of_state)}; };
  Errors least{INFINITY, INFINITY};
  for (const Output<double>& d : draws) {
    const Errors e = errors(want, store(d));
    raise(expected, e);
    least = {std::min(least.o, e.o), std::min(least.state, e.state)};
  }
  const Errors by_tf32 = fp32 ? errors(want, store(tf32)) : Errors{};

  const Index T = z.length(n);
  Evidence lane;
  lane.measured.push_back({.tensor = "o",
                           .n = n,
                           .head = j,
                           .b = z.batch(n),
                           .first_row = z.begin(n),
                           .numbers = T * z.d_v,
                           .expected = expected.o,
                           .least = least.o,
                           .tf32 = by_tf32.o,
                           .reference = reference.o});
  compare(lane.measured[0], want.O, got.O), locate(lane.measured[0], want.O, got.O);
  bool well_posed = want.O.allFinite() && want.S.allFinite() && expected.o < kIllPosed;
  if (s.has_final_state()) {
    lane.measured.push_back({.tensor = "final_state",
                             .measure = Measure::whole,
                             .n = n,
                             .head = j,
                             .b = n,
                             .numbers = std::min(T, z.d_k) * z.d_v,
                             .expected = expected.state,
                             .least = least.state,
                             .tf32 = by_tf32.state,
                             .reference = reference.state});
    compare(lane.measured[1], want.S, got.S), locate(lane.measured[1], want.S, got.S);
    well_posed = well_posed && expected.state < kIllPosed;
    // An empty sequence hands its state on untouched, whatever it would have been kept in.
    if (of_state.p == kFp32.p && T > 0) lane.bf16.count(want.S, got.S), lane.fp16.count(want.S, got.S);
  }
  for (Measured& m : lane.measured) m.well_posed = well_posed;
  return lane;
}

}  // namespace delta
