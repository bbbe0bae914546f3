// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <tuple>

#include "checks/core/parallel_for.hpp"
#include "checks/verify/errors.hpp"
#include "checks/verify/rounded_chunk.hpp"
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

// ---------------------------------------------------------------- evidence beyond the ratio

/// Counts the elements of a fp32 state that a narrow format holds although it does not hold the exact value. A state
/// that was kept in that format has only such elements; chance gives one in 2^16 (bf16) or 2^13 (fp16).
struct NarrowState {
  Format format;
  Index telling = 0, held = 0;

  void count(const Mat<double>& want, const Mat<double>& got) {
    for (Index c = 0; c < got.cols(); ++c)
      for (Index r = 0; r < got.rows(); ++r) {
        const double exact = kFp32.round(want(r, c));
        if (!std::isfinite(got(r, c)) || format.round(exact) == exact) continue;
        ++telling;
        held += format.round(got(r, c)) == got(r, c);
      }
  }
  void add(const NarrowState& other) { telling += other.telling, held += other.held; }
  bool certain() const { return telling >= 8 && held == telling; }
};

/// Sums over an output, for what is reported of it as a whole.
struct Total {
  double want2 = 0, error2 = 0;
  bool zero_want = true, zero_got = true, finite = true;

  void add(const Total& x) {
    want2 += x.want2, error2 += x.error2;
    zero_want = zero_want && x.zero_want, zero_got = zero_got && x.zero_got, finite = finite && x.finite;
  }
  static Total of(const Mat<double>& want, const Mat<double>& got) {
    return {want.squaredNorm(), (got - want).squaredNorm(), want.isZero(0), got.isZero(0), got.allFinite()};
  }
  double relative_error() const { return relative(std::sqrt(error2), std::sqrt(want2)); }
};

/// What is kept of a lane once it has been judged.
struct Lane {
  Errors error, expected, tf32, judge;
  Total o, state;
  NarrowState bf16{kBf16}, fp16{kFp16};
  bool reference_finite = true;
  std::optional<BadPlace> first_bad, worst;
  double worst_badness = 0;  ///< error of `worst`, over what is expected of its output
};

/// The element of a row (or column) that is furthest off.
Index furthest(const Vec<double>& want, const Vec<double>& got) {
  Index at = 0;
  for (Index i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return i;
    if (std::abs(got[i] - want[i]) > std::abs(got[at] - want[at])) at = i;
  }
  return at;
}

/// The first row beyond what is expected, and the worst element.
void find_places(const Shape& z, Index n, Index j, const Output<double>& want, const Output<double>& got, Lane& lane) {
  auto look = [&](const char* tensor, const Mat<double>& W, const Mat<double>& G, double size, double row_share,
                  double expected, auto place) {
    for (Index r = 0; r < G.rows(); ++r) {
      const double error = relative((G.row(r) - W.row(r)).stableNorm(), size) / row_share;
      if (!(error > 0)) continue;
      const double badness = error / expected;
      const bool first = !(badness < kMarginal) && !lane.first_bad, worst = badness > lane.worst_badness;
      if (!first && !worst) continue;
      const Index c = furthest(W.row(r).transpose(), G.row(r).transpose());
      BadPlace p = place(r, c);
      p.tensor = tensor, p.head = j, p.channel = c, p.want = W(r, c), p.got = G(r, c);
      if (first) lane.first_bad = p;
      if (worst) lane.worst = p, lane.worst_badness = badness;
    }
  };
  look("o", want.O, got.O, largest_row(want.O), 1, lane.expected.o,
       [&](Index r, Index) { return BadPlace{.b = z.batch(n), .t = z.begin(n) + r}; });
  // A state is judged as a whole: a row is off if it holds more than its share of the error.
  const auto rows = static_cast<double>(want.S.rows());
  look("final_state", want.S, got.S, want.S.stableNorm(), 1 / std::sqrt(rows), lane.expected.state,
       [&](Index r, Index) { return BadPlace{.b = n, .t = r}; });
}

// ---------------------------------------------------------------- one lane, and all

Lane judge_lane(const Plan& plan, Index n, Index j, bool certify) {
  const Subject& s = plan.subject;
  const Output<double> blank = sized(s.shape(), s.shape().length(n)), got = s.candidate(n, j);
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

  Lane lane;
  if (certify) {
    Output<double> other = plan.certify_all ? exact_lane(s, n, j) : std::move(chunks);
    lane.judge = errors(other, want);
    if (plan.wide) {  // the sums are good to twice 53 bits and decays to 64; what is left is the rounding to double
      want = std::move(other);
      lane.judge = {kFp64.unit(), kFp64.unit()};
    }
  }
  lane.reference_finite = want.O.allFinite() && want.S.allFinite();
  lane.error = errors(want, got);
  // Rounding an output to its type may cost u in every element, whatever came before.
  const double units = plan.wide ? 2 : 0.7;  // in double, the reference is rounded as well
  lane.expected = {units * plan.o.unit(), units * plan.state.unit()};
  auto store = [&](const Output<double>& x) { return Output<double>{stored(x.O, plan.o), stored(x.S, plan.state)}; };
  for (const Output<double>& d : draws) raise(lane.expected, errors(want, store(d)));
  if (fp32) lane.tf32 = errors(want, store(tf32));
  lane.o = Total::of(want.O, got.O);
  if (s.has_final_state()) {
    lane.state = Total::of(want.S, got.S);
    // An empty sequence hands its state on untouched, whatever it would have been kept in.
    if (plan.state.p == kFp32.p && got.O.rows() > 0) lane.bf16.count(want.S, got.S), lane.fp16.count(want.S, got.S);
  }
  find_places(s.shape(), n, j, want, got, lane);
  return lane;
}

std::string short_text(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.2g", x);
  return s;
}

/// Beyond this, correct code of that precision has no digit to show: the inputs are to blame, not the kernel.
constexpr double kIllPosed = 0.1;
/// The reference must be this much closer to the truth than correct code of the candidate's precision.
constexpr double kJudgeShare = 0.05;

/// A lane of few numbers shows what correct code makes only to some 1/sqrt(n), and among thousands of lanes one
/// kernel's worst is not another's. What is missing is taken from the other lanes, up to that much.
double pooled(double own, double largest, Index n) {
  const double most = own * (1 + 4 / std::sqrt(static_cast<double>(std::max<Index>(n, 1))));
  return std::max(own, std::min(largest, most));
}

/// From all lanes to one verdict. A kernel that fails in one lane has failed.
void conclude(const Plan& plan, std::vector<Lane>& lanes, FileVerdict& v) {
  const Subject& s = plan.subject;
  const Shape& z = s.shape();
  Total o, state;
  NarrowState bf16{kBf16}, fp16{kFp16};
  Errors judge, largest;
  const bool has_state = s.has_final_state();
  const auto well_posed = [&](const Lane& l) {
    return l.reference_finite && l.expected.o < kIllPosed && (!has_state || l.expected.state < kIllPosed);
  };
  for (const Lane& l : lanes) {
    o.add(l.o), state.add(l.state), bf16.add(l.bf16), fp16.add(l.fp16), raise(judge, l.judge);
    if (well_posed(l)) raise(largest, l.expected);
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& l = lanes[i];
    if (!well_posed(l)) continue;
    const Index T = z.length(static_cast<Index>(i) / z.HV);
    l.expected = {pooled(l.expected.o, largest.o, T * z.d_v),
                  pooled(l.expected.state, largest.state, std::min(T, z.d_k) * z.d_v)};
  }
  v.o.present = true, v.o.rel_error = o.relative_error();
  v.final_state.present = has_state;
  if (has_state) v.final_state.rel_error = state.relative_error();
  v.judge.error_o = judge.o, v.judge.error_state = judge.state;

  bool ill_posed = false, unsure = false, tf32_explains = true;
  double badness = -1;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& l = lanes[i];
    bool bad = false;
    auto take = [&](Judged& to, double error, double expected, double tf32) {
      const double ratio = ratio_of(error, expected);
      if (!(ratio <= to.ratio) || to.expected == 0) to.error = error, to.ratio = ratio, to.expected = expected;
      if (delta::judge(ratio) == Verdict::failed) tf32_explains = tf32_explains && ratio_of(error, tf32) < kFailed;
      bad = bad || delta::judge(ratio) != Verdict::passed;
    };
    if (!well_posed(l)) {
      ill_posed = true;
      v.ill_posed = std::max({v.ill_posed, l.expected.o, l.expected.state});
      continue;
    }
    unsure = unsure ||
             (!plan.wide && (judge.o > kJudgeShare * l.expected.o || judge.state > kJudgeShare * l.expected.state));
    take(v.o, l.error.o, l.expected.o, l.tf32.o);
    if (has_state) take(v.final_state, l.error.state, l.expected.state, l.tf32.state);
    const auto before = [](const BadPlace& a, const BadPlace& b) {
      return std::tuple(a.tensor != "o", a.b, a.t, a.head) < std::tuple(b.tensor != "o", b.b, b.t, b.head);
    };
    if (bad && l.first_bad && (!v.first_bad || before(*l.first_bad, *v.first_bad))) v.first_bad = l.first_bad;
    if (l.worst && l.worst_badness > badness) v.worst = l.worst, badness = l.worst_badness;
  }

  const bool no_o = o.zero_want, no_state = !has_state || state.zero_want;
  auto say = [&](Verdict verdict, const std::string& reason) { v.verdict = verdict, v.reason = reason; };
  const std::string model = std::string(s.operands().name);
  const Verdict worst = delta::judge(v.ratio());
  const char* output = v.final_state.ratio > v.o.ratio ? "final_state" : "o";
  const double times = v.ratio();
  if (lanes.empty() || (no_o && no_state)) {
    say(Verdict::untrusted, lanes.empty() ? "there is no sequence: nothing was judged"
                                          : "the exact result is zero everywhere: nothing was tested");
  } else if (worst == Verdict::failed) {
    if (!o.finite || !state.finite)
      say(Verdict::failed, std::string(o.finite ? "final_state" : "o") + " is not finite where the exact result is");
    else if (o.zero_got && !o.zero_want)
      say(Verdict::failed, "o is zero everywhere and should not be: it looks unwritten");
    else if (state.zero_got && !state.zero_want)
      say(Verdict::failed, "final_state is zero everywhere and should not be: it looks unwritten");
    else if (s.operands().p == kFp32.p && tf32_explains)
      say(Verdict::marginal, "the error is that of products with tf32 operands, not of fp32");
    else
      say(Verdict::failed, std::string("the error of ") + output + " is " + short_text(times) + " times what correct " +
                               model + " code makes");
  } else if (ill_posed) {
    say(Verdict::untrusted, "ill-posed: correct " + model + " code is off by " + short_text(v.ill_posed) +
                                " on these inputs; are the keys normalised?");
  } else if (unsure) {
    say(Verdict::untrusted, "the reference is not accurate enough to judge " + model);
  } else if (bf16.certain() || fp16.certain()) {
    say(Verdict::marginal, std::string("final_state is fp32 and holds only ") + (bf16.certain() ? "bf16" : "fp16") +
                               " numbers: the state was kept in that type, or rounded to it at the end");
  } else if (worst == Verdict::marginal) {
    say(Verdict::marginal, std::string("the error of ") + output + " is " + short_text(times) + " times what correct " +
                               model + " code makes");
  } else {
    say(Verdict::passed, "the errors are those of correct " + model + " code");
  }
  if (v.verdict == Verdict::passed)
    v.first_bad.reset();
  else if (!v.first_bad)
    v.first_bad = v.worst;  // no row stands out: the state as a whole
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
  conclude(plan, lanes, v);
  if (v.verdict == Verdict::failed || v.verdict == Verdict::marginal) {
    std::vector<Errors> error, expected;
    for (const Lane& l : lanes) error.push_back(l.error), expected.push_back(l.expected);
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
