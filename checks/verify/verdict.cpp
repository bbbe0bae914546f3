// SPDX-License-Identifier: Apache-2.0
#include "checks/verify/verdict.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace delta {
namespace {

/// The reference must be this much closer to the truth than correct code of the candidate's precision.
constexpr double kJudgeShare = 0.05;
/// Rows of a picture.
constexpr Index kBins = 512;

std::string short_text(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.2g", x);
  return s;
}

/// A lane of few numbers shows what correct code makes only to some 1/sqrt(n), and among thousands of lanes one
/// kernel's worst is not another's. What is missing is taken from the other lanes, up to that much.
void pool(std::vector<Measured>& all) {
  std::map<std::string, double> largest;
  for (const Measured& m : all)
    if (m.well_posed) largest[m.tensor] = std::max(largest[m.tensor], m.expected);
  for (Measured& m : all) {
    const double most = m.expected * (1 + 4 / std::sqrt(static_cast<double>(std::max<Index>(m.numbers, 1))));
    if (m.well_posed) m.expected = std::max(m.expected, std::min(largest[m.tensor], most));
  }
}

/// Raises a map to errors that begin at a row of it.
void draw(ErrorMap& map, const Vec<double>& errors, double expected, Index first, Index head) {
  for (Index i = 0; i < errors.size(); ++i) {
    double& at = map.ratio((first + i) / map.bin, head);
    at = std::max(at, ratio_of(errors[i], expected));
  }
}

/// Blank maps of the size of a tensor.
void size_maps(Judged& j, const std::vector<const Measured*>& lanes, const Shape& z) {
  Index rows = lanes[0]->measure == Measure::worst_row ? z.T : 0, channels = 0, heads = 0;
  for (const Measured* m : lanes)
    rows = std::max(rows, m->rows.size()), channels = std::max(channels, m->channels.size()),
    heads = std::max(heads, m->head + 1);
  j.by_token.bin = std::max<Index>(1, (rows + kBins - 1) / kBins);
  j.by_token.ratio.setZero((rows + j.by_token.bin - 1) / j.by_token.bin, heads);
  j.by_channel.ratio.setZero(channels, heads);
}

/// The figures of one tensor, from its lanes: those of the lane with the largest ratio.
Judged summary(const std::vector<const Measured*>& lanes, const Shape& z) {
  Judged j{.tensor = lanes[0]->tensor};
  size_maps(j, lanes, z);
  Total total;
  bool none = true;
  for (const Measured* m : lanes) {
    total.add(m->total);
    j.reference = std::max(j.reference, m->reference);
    if (!m->well_posed) continue;
    const double ratio = ratio_of(m->error, m->expected);
    if (none || !(ratio <= j.ratio)) j.error = m->error, j.ratio = ratio, j.expected = m->expected, j.least = m->least;
    none = false;
    draw(j.by_token, m->rows, m->expected, m->first_row, m->head);
    draw(j.by_channel, m->channels, m->expected, 0, m->head);
  }
  j.rel_error = total.relative_error();
  return j;
}

/// A kernel with tf32 operands errs by about what the model of one does; what is far below that has another cause.
constexpr double kTf32Least = 0.3;

/// What decides beside the ratios.
struct Findings {
  std::map<std::string, Total> totals;
  bool ill_posed = false;      ///< some lane is
  bool unsure = false;         ///< the reference is too close to what it judges
  bool tf32_explains = false;  ///< every failure is as large as what tf32 operands make
};

Findings look(const Subject& s, const std::vector<Measured>& all, FileVerdict& v) {
  Findings f{.tf32_explains = s.operands().p == kFp32.p};
  const bool wide = s.operands().p >= kFp64.p;  // the reference is then wider than what it is rounded to
  for (const Measured& m : all) {
    f.totals[m.tensor].add(m.total);
    if (!m.well_posed) {
      f.ill_posed = true, v.ill_posed = std::max(v.ill_posed, m.expected);
      continue;
    }
    const bool computed = s.shape().length(m.n) > 0;  // an empty sequence hands its state on, and nothing is uncertain
    f.unsure = f.unsure || (!wide && computed && v.find(m.tensor)->reference > kJudgeShare * m.expected);
    if (judge(ratio_of(m.error, m.expected)) == Verdict::failed)
      f.tf32_explains =
          f.tf32_explains && ratio_of(m.error, m.tf32) > kTf32Least && ratio_of(m.error, m.tf32) < kFailed;
  }
  return f;
}

/// The first bad place of the file, in the order of its outputs, and the worst.
void find_places(const std::vector<Measured>& all, FileVerdict& v) {
  const auto rank = [&](const BadPlace& p) {
    const auto at = std::ranges::find(v.outputs, p.tensor, &Judged::tensor) - v.outputs.begin();
    return std::tuple(at, p.b, p.t, p.head);
  };
  double badness = -1;
  for (const Measured& m : all) {
    if (!m.well_posed) continue;
    const bool bad = judge(ratio_of(m.error, m.expected)) != Verdict::passed;
    if (bad && m.first_bad && (!v.first_bad || rank(*m.first_bad) < rank(*v.first_bad))) v.first_bad = m.first_bad;
    if (m.worst && m.badness > badness) v.worst = m.worst, badness = m.badness;
  }
  if (v.verdict == Verdict::passed)
    v.first_bad.reset();
  else if (!v.first_bad)
    v.first_bad = v.worst;  // no row stands out: the state as a whole
}

/// What is wrong with a kernel whose error is beyond what correct code makes.
std::string fault(const FileVerdict& v, const Findings& f, const std::string& model) {
  for (const Judged& j : v.outputs)
    if (!f.totals.at(j.tensor).finite) return j.tensor + " is not finite where the exact result is";
  for (const Judged& j : v.outputs)
    if (const Total& t = f.totals.at(j.tensor); t.zero_got && !t.zero_want)
      return j.tensor + " is zero everywhere and should not be: it looks unwritten";
  return "the error of " + v.worst_output().tensor + " is " + short_text(v.ratio()) + " times what correct " + model +
         " code makes";
}

/// Whether the rule corrects along a key that is longer than 1: then chunks, and at last the state, grow without bound.
bool long_keys(const Subject& s) {
  const auto is_long = [](const MicroStep<double>& m) { return !m.x.isZero(0) && m.y.norm() > 1.05; };
  bool found = false;
  for (Index lane = 0; lane < s.lanes() && !found; ++lane)
    each_stream<double>(
        s.rule(), s.lane<double>(lane / s.shape().HV, lane % s.shape().HV),
        [&](const Stream<double>& stream, Index) { found = found || std::ranges::any_of(stream.steps, is_long); });
  return found;
}

/// The first of these that holds is the verdict.
void decide(const Subject& s, const Evidence& e, const Findings& f, FileVerdict& v) {
  const std::string model(s.operands().name);
  const Verdict worst = judge(v.ratio());
  const bool failed = worst == Verdict::failed;
  const auto is = [&](bool holds, Verdict verdict, const std::string& reason) {
    if (holds) v.verdict = verdict, v.reason = reason;
    return holds;
  };
  const bool nothing = std::ranges::all_of(f.totals, [](const auto& t) { return t.second.zero_want; });
  const bool narrow = e.bf16.certain() || e.fp16.certain();
  is(e.measured.empty(), Verdict::untrusted, "there is no sequence: nothing was judged") ||
      is(nothing, Verdict::untrusted, "the exact result is zero everywhere: nothing was tested") ||
      (v.excused = is(failed && f.tf32_explains, Verdict::marginal,
                      "the error is that of products with tf32 operands, not of fp32")) ||
      is(failed, Verdict::failed, failed ? fault(v, f, model) : "") ||
      is(f.ill_posed, Verdict::untrusted,
         "ill-posed: correct " + model + " code is off by " + short_text(v.ill_posed) + " on these inputs" +
             (f.ill_posed && long_keys(s) ? "; are the keys normalised?" : "")) ||
      is(f.unsure, Verdict::untrusted, "the reference is not accurate enough to judge " + model) ||
      is(narrow, Verdict::marginal,
         std::string("final_state is fp32 and holds only ") + (e.bf16.certain() ? "bf16" : "fp16") +
             " numbers: the state was kept in that type, or rounded to it at the end") ||
      is(worst == Verdict::marginal, Verdict::marginal, worst == Verdict::marginal ? fault(v, f, model) : "") ||
      is(true, Verdict::passed, "the errors are those of correct " + model + " code");
}

}  // namespace

void withdraw_excuse(FileVerdict& v) {
  v.excused = false, v.verdict = Verdict::failed;
  v.reason = "the error of " + v.worst_output().tensor + " is " + short_text(v.ratio()) +
             " times what correct fp32 code makes, and what it looks like is no rounding";
}

void NarrowState::count(const Mat<double>& want, const Mat<double>& got) {
  for (Index c = 0; c < got.cols(); ++c)
    for (Index r = 0; r < got.rows(); ++r) {
      const double exact = kFp32.round(want(r, c));
      if (!std::isfinite(got(r, c)) || format.round(exact) == exact) continue;
      ++telling;
      held += format.round(got(r, c)) == got(r, c);
    }
}

const Judged* FileVerdict::find(std::string_view tensor) const {
  const auto it = std::ranges::find(outputs, tensor, &Judged::tensor);
  return it == outputs.end() ? nullptr : &*it;
}

const Judged& FileVerdict::worst_output() const { return *std::ranges::max_element(outputs, {}, &Judged::ratio); }

void conclude(const Subject& subject, Evidence& evidence, FileVerdict& v) {
  pool(evidence.measured);
  std::vector<std::string> tensors;
  std::map<std::string, std::vector<const Measured*>> lanes;
  for (const Measured& m : evidence.measured) {
    if (!lanes.contains(m.tensor)) tensors.push_back(m.tensor);
    lanes[m.tensor].push_back(&m);
  }
  for (const std::string& tensor : tensors) v.outputs.push_back(summary(lanes[tensor], subject.shape()));
  decide(subject, evidence, look(subject, evidence.measured, v), v);
  find_places(evidence.measured, v);
}

}  // namespace delta
