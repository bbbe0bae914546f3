// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <new>

#include "checks/core/parallel_for.hpp"
#include "checks/verify/rounded_chunk.hpp"
#include "checks/verify/verdict.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

// ---------------------------------------------------------------- what correct code makes

/// Draws of what correct code makes with operands of a format. Kernels differ in chunk length, in how they solve, in
/// the type that they keep the inverse in and in how their roundings fall; an error within twice the largest of these
/// is nobody's mistake. Odd chunk lengths move the end of the sequence within its chunk, where the final state is made.
std::vector<Schedule> schedules(const Format& operand, std::size_t draws) {
  struct Kind {
    Index C;
    bool one_solve;
    Format inverse;
  };
  const bool narrow = operand.p < kFp32.p;
  const Format &f = operand, &inverse = narrow ? kFp16 : operand;
  const Kind kinds[] = {{64, false, f}, {0, false, f},        {64, true, inverse}, {16, false, f}, {48, true, f},
                        {128, true, f}, {32, false, inverse}, {64, true, f},       {96, false, f}, {24, true, f}};
  Schedule how{.operand = f, .state = narrow ? kFp32 : f};
  std::vector<Schedule> all;
  for (std::size_t i = 0; i < draws; ++i) {
    const Kind& kind = kinds[i % std::size(kinds)];
    how.C = kind.C, how.one_solve = kind.one_solve, how.inverse = kind.inverse;
    all.push_back(how);
    // The golden section spreads any number of stretches over [1, 2).
    how.stretch = 1 + std::fmod(0.6180339887 * static_cast<double>(i + 1), 1.0);
  }
  return all;
}

/// An output stored in a format: the last rounding of a kernel.
Mat<double> stored(const Mat<double>& A, const Format& f) {
  return f.p >= kFp64.p ? A : Mat<double>(A.unaryExpr([&](double x) { return f.round(x); }));
}

/// Everything that the lanes share.
struct Plan {
  const Subject& subject;
  std::vector<Schedule> draws;
  Format o, state;          ///< formats of the outputs
  bool wide = false;        ///< the reference is computed in double-double
  bool certify_all = true;  ///< the judge is checked against double-double in each lane; else against chunks, in some
};

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

// ---------------------------------------------------------------- one lane

/// What a lane shows: its tensors, and whether a fp32 state holds only numbers of a narrower type.
struct Lane {
  std::vector<Measured> outputs;  ///< o, and the state if there is one
  NarrowState bf16{kBf16}, fp16{kFp16};
};

Lane judge_lane(const Plan& plan, Index n, Index j, bool certify) {
  const Subject& s = plan.subject;
  const Shape& z = s.shape();
  const Output<double> blank = sized(z, z.length(n)), got = s.candidate(n, j);
  Output<double> want = blank, chunks = blank, tf32 = blank;
  std::vector<Output<double>> draws(plan.draws.size(), blank);
  const bool fp32 = s.operands().p == kFp32.p, by_chunks = certify && !plan.certify_all;

  each_stream<double>(s.rule(), s.lane<double>(n, j), [&](const Stream<double>& st, Index channel) {
    const Output<double> o = recurrent<double>(st);
    place(want, {s.scale() * o.O, o.S}, channel);
    for (std::size_t i = 0; i < draws.size(); ++i)
      place(draws[i],
            plan.wide ? simulate<double>(st, s.scale(), plan.draws[i]) : simulate<float>(st, s.scale(), plan.draws[i]),
            channel);
    if (fp32) place(tf32, simulate<float>(st, s.scale(), {.operand = kTf32, .inverse = kTf32}), channel);
    if (by_chunks)
      place(chunks, simulate<double>(st, s.scale(), {.operand = kFp64, .inverse = kFp64, .state = kFp64}), channel);
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

  // Rounding an output to its type may cost u in every element, whatever came before.
  const double units = plan.wide ? 2 : 0.7;  // in double, the reference is rounded as well
  Errors expected{units * plan.o.unit(), units * plan.state.unit()};
  const auto store = [&](const Output<double>& x) {
    return Output<double>{stored(x.O, plan.o), stored(x.S, plan.state)};
  };
  for (const Output<double>& d : draws) raise(expected, errors(want, store(d)));
  const Errors by_tf32 = fp32 ? errors(want, store(tf32)) : Errors{};

  const Index T = z.length(n);
  Lane lane;
  lane.outputs.push_back({.tensor = "o",
                          .n = n,
                          .head = j,
                          .b = z.batch(n),
                          .first_row = z.begin(n),
                          .numbers = T * z.d_v,
                          .expected = expected.o,
                          .tf32 = by_tf32.o,
                          .reference = reference.o});
  compare(lane.outputs[0], want.O, got.O), locate(lane.outputs[0], want.O, got.O);
  bool well_posed = want.O.allFinite() && want.S.allFinite() && expected.o < kIllPosed;
  if (s.has_final_state()) {
    lane.outputs.push_back({.tensor = "final_state",
                            .measure = Measure::whole,
                            .n = n,
                            .head = j,
                            .b = n,
                            .numbers = std::min(T, z.d_k) * z.d_v,
                            .expected = expected.state,
                            .tf32 = by_tf32.state,
                            .reference = reference.state});
    compare(lane.outputs[1], want.S, got.S), locate(lane.outputs[1], want.S, got.S);
    well_posed = well_posed && expected.state < kIllPosed;
    // An empty sequence hands its state on untouched, whatever it would have been kept in.
    if (plan.state.p == kFp32.p && T > 0) lane.bf16.count(want.S, got.S), lane.fp16.count(want.S, got.S);
  }
  for (Measured& m : lane.outputs) m.well_posed = well_posed;
  return lane;
}

/// The errors of each lane, and what is expected of it, as a diagnosis takes them.
std::pair<std::vector<Errors>, std::vector<Errors>> errors_by_lane(const Subject& s, const std::vector<Measured>& all) {
  std::vector<Errors> error(static_cast<std::size_t>(s.lanes())), expected = error;
  for (const Measured& m : all) {
    const auto lane = static_cast<std::size_t>(m.n * s.shape().HV + m.head);
    if (m.tensor == "o") error[lane].o = m.error, expected[lane].o = m.expected;
    if (m.tensor == "final_state") error[lane].state = m.error, expected[lane].state = m.expected;
  }
  return {error, expected};
}

}  // namespace

FileVerdict verify(const Dump& dump, const DumpOptions& options, int threads) {
  const Subject s(dump, options);
  const Shape& z = s.shape();
  FileVerdict v{.file = dump.file, .rule = std::string(s.rule().info.id), .notes = s.notes()};
  Plan plan{.subject = s, .draws = {}, .o = s.format_of("o")};
  plan.state = s.has_final_state() ? s.format_of("final_state") : kFp32;
  plan.wide = s.operands().p >= kFp64.p;

  // Work in multiply-adds of one pass: small problems are drawn more often, and judged twice in every lane.
  double work = 0;
  for (Index n = 0; n < z.sequences(); ++n)
    work += static_cast<double>(z.length(n)) * static_cast<double>(z.HV * z.d_k * z.d_v);
  plan.draws = schedules(s.operands(), work > 1e8 ? 4 : work > 1e6 ? 10 : work > 1e5 ? 20 : 40);
  plan.certify_all = plan.wide || work < 2e7;
  const Index certified = plan.certify_all ? s.lanes() : std::min<Index>(s.lanes(), threads);

  std::vector<Lane> lanes(static_cast<std::size_t>(s.lanes()));
  parallel_for(s.lanes(), threads, [&](Index lane) {
    lanes[static_cast<std::size_t>(lane)] = judge_lane(plan, lane / z.HV, lane % z.HV, lane < certified);
  });

  v.model =
      std::to_string(plan.draws.size()) + " draws of " + std::string(s.operands().name) +
      (s.operands().p >= kFp32.p ? " forms (recurrent, chunks of 16 to 128)"
                                 : " kernels (recurrent, chunks of 16 to 128, one solve or two, fp32 sums and state)");
  v.judge.how = plan.wide ? "recurrence in double-double" : "recurrence in double";
  v.judge.against = plan.wide          ? "its rounding to double"
                    : plan.certify_all ? "the recurrence in double-double, every lane"
                                       : "the chunk form in double, " + std::to_string(certified) + " of " +
                                             std::to_string(s.lanes()) + " lanes";
  Evidence evidence;
  for (Lane& l : lanes) {
    std::ranges::move(l.outputs, std::back_inserter(evidence.measured));
    evidence.bf16.add(l.bf16), evidence.fp16.add(l.fp16);
  }
  conclude(s, evidence, v);
  if (v.verdict == Verdict::failed || v.verdict == Verdict::marginal) {
    const auto [error, expected] = errors_by_lane(s, evidence.measured);
    v.diagnosis = diagnose(s, error, expected, threads);
    if (const std::optional<Format> f = s.hidden_format())
      v.notes.push_back("q, k and v hold only " + std::string(f->name) + " numbers: if the kernel took them as " +
                        std::string(f->name) + ", store them in that type and it is judged as " + std::string(f->name) +
                        " code");
  }
  return v;
}

FileVerdict verify_file(const std::string& path, const DumpOptions& options, int threads) {
  try {
    return verify(read_dump(path), options, threads);
  } catch (const UsageError& e) {
    return {.file = path, .rule = options.rule, .unreadable = true, .reason = e.what()};
  } catch (const std::bad_alloc&) {
    const UsageError e(path + ": needs more memory than there is; store fewer heads or tokens");
    return {.file = path, .rule = options.rule, .unreadable = true, .reason = e.what()};
  }
}

}  // namespace delta
