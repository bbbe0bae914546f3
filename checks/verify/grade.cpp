// SPDX-License-Identifier: Apache-2.0
// Which class of implementation an error looks like. Roundings are deterministic: a model that rounds where the kernel
// does makes not only an error of the same size, but much of the same error, number by number.
#include "checks/verify/grade.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "checks/core/parallel_for.hpp"
#include "reference/forms/recurrent.hpp"

namespace delta {
namespace {

/// Multiply-adds of one pass over what is graded: the lanes, or their first tokens, that make so many; and most lanes.
constexpr Index kWork = 4'000'000, kLanes = 64;
/// A model is recognised if it leaves less than half of the square error unexplained, and less than that of each
/// output; independent errors of the same size leave twice of it, a right output that was spoilt leaves all of it.
constexpr double kRecognised = 0.5, kRecognisedInEach = 0.75;
/// Models that leave nearly as little cannot be told apart.
constexpr double kAlike = 1.1, kAlikeAtLeast = 0.01;
/// Sizes within this factor are one size: kernels of one class differ by as much in how they solve (one solve makes 0.8
/// of the error of two).
constexpr double kSameSize = 1.3;
/// Errors of fp32 sums have no pattern that a model could know.
constexpr double kFp32Noise = 3;
/// Square of a relative error that is none.
constexpr double kTiny = 1e-30;

/// A class, and one way to be of it.
struct Model {
  std::string_view grade;
  Schedule how;
};
/// From the finest to the coarsest.
constexpr std::string_view kGrades[] = {"recurrent-fp32",     "chunk-fp32-inverse", "chunk-tf32-inverse",
                                        "chunk-fp16-inverse", "chunk-bf16-inverse", "state-bf16"};
auto coarseness(std::string_view grade) { return std::ranges::find(kGrades, grade) - std::begin(kGrades); }

std::string_view by_inverse(const Format& f) {
  return f.name == kBf16.name   ? "chunk-bf16-inverse"
         : f.name == kFp16.name ? "chunk-fp16-inverse"
         : f.name == kTf32.name ? "chunk-tf32-inverse"
                                : "chunk-fp32-inverse";
}

/// Models that differ in how a kernel is built: its chunk length, one solve or two, an inverse or a substitution in
/// fp32, the type of its operands.
std::vector<Model> builds(const Format& operand) {
  std::vector<Model> all{{"recurrent-fp32", {.C = 0}}};
  if (operand.p < kFp32.p) all.push_back({"recurrent-fp32", {.C = 0, .beta = operand}});
  for (const Index C : {64, 16, 32, 128}) {
    for (const bool one_solve : {false, true})
      all.push_back({by_inverse(operand), {.C = C, .one_solve = one_solve, .operand = operand, .inverse = operand}});
    all.push_back(
        {"chunk-fp32-inverse",
         {.C = C, .one_solve = true, .operand = operand, .inverse = kFp32, .exact = only(Point::right_side)}});
    all.push_back({"state-bf16", {.C = C, .operand = operand, .inverse = operand, .state = kBf16}});
  }
  for (const Format& f : {kTf32, kBf16})
    if (f.p < operand.p || (f.name == kTf32.name && operand.p < kFp32.p))
      all.push_back({by_inverse(f), {.operand = f, .inverse = f}});
  all.push_back({"state-bf16", {.C = 0, .state = kBf16}});
  return all;
}

/// The same build with another inverse, with its state in bf16, with beta in the type of the operands.
std::vector<Model> variants(const Model& of, const Format& operand) {
  std::vector<Model> all;
  const bool chunked = of.how.C > 0;
  for (const Format& f : {kFp32, kTf32, kFp16, kBf16})
    if (chunked && f.name != of.how.inverse.name && f.p <= kFp32.p && of.how.operand.p < kFp32.p) {
      all.push_back({by_inverse(f), of.how});
      all.back().how.inverse = f, all.back().how.exact = 0;
    }
  if (chunked) all.push_back({"state-bf16", of.how}), all.back().how.state = kBf16;
  if (operand.p < kFp32.p) all.push_back(of), all.back().how.beta = operand;
  return all;
}

std::string text(const Schedule& how) {
  std::string s = how.C == 0
                      ? "the recurrence"
                      : "chunks of " + std::to_string(how.C) + ", " + (how.one_solve ? "one solve" : "two solves");
  if (how.C > 0) s += ", " + std::string(how.operand.name) + " operands, inverse in " + std::string(how.inverse.name);
  s += ", state in " + std::string(how.state.name);
  if (how.beta.p < kFp64.p) s += ", beta in " + std::string(how.beta.name);
  return s;
}

/// A lane, or its first tokens, with what the kernel returned there.
struct Sample {
  std::vector<std::pair<Stream<double>, Index>> streams;
  Output<double> want, got;
  bool whole = false;  ///< to the last token: then the state can be compared
};

Sample sample(const Subject& s, Index lane, Index tokens) {
  const Shape& z = s.shape();
  const Index n = lane / z.HV, j = lane % z.HV;
  Sample x{.streams = {}, .want = {}, .got = s.candidate(n, j), .whole = tokens == z.length(n)};
  x.got.O = Mat<double>(x.got.O.topRows(tokens));
  x.want = {Mat<double>::Zero(tokens, z.d_v), Mat<double>::Zero(z.d_v, z.d_k)};
  each_stream<double>(s.rule(), s.lane<double>(n, j), [&](Stream<double> st, Index channel) {
    st.steps.resize(static_cast<std::size_t>(tokens * st.m));
    st.Q = Mat<double>(st.Q.topRows(tokens));
    const Output<double> o = recurrent<double>(st);
    place(x.want, {s.scale() * o.O, o.S}, channel);
    x.streams.emplace_back(std::move(st), channel);
  });
  return x;
}

/// The longest lanes first, as far as the work goes; at least the beginning of one.
std::vector<Sample> samples(const Subject& s) {
  const Shape& z = s.shape();
  std::vector<Index> lanes(static_cast<std::size_t>(s.lanes()));
  std::iota(lanes.begin(), lanes.end(), 0);
  std::ranges::stable_sort(lanes, std::greater{}, [&](Index lane) { return z.length(lane / z.HV); });
  std::vector<Sample> all;
  Index left = std::max<Index>(kWork / (z.d_k * z.d_v), 1);  // tokens
  for (const Index lane : lanes) {
    const Index tokens = std::min(z.length(lane / z.HV), left);
    if (tokens == 0 || std::ssize(all) == kLanes || (!all.empty() && tokens < z.length(lane / z.HV))) break;
    all.push_back(sample(s, lane, tokens));
    left -= tokens;
  }
  return all;
}

/// Square errors of o and of the state, relative to each lane's size, summed over the samples.
using Squares = std::array<double, 2>;
constexpr const char* kOutputs[] = {"o", "final_state"};

struct Fit {
  Model model;
  Squares error{}, residual{};  ///< of the model against the exact output, of the kernel against the model
  double unexplained = 0;       ///< share of the kernel's square error, the mean of both outputs
  double most = 0;              ///< the same, of the worse of the two
};

class Grader {
 public:
  Grader(const Subject& s, bool state_is_wide, int threads)
      : s_(s), samples_(samples(s)), state_is_wide_(state_is_wide), threads_(threads) {
    compared_ = {true, s.has_final_state() && std::ranges::any_of(samples_, [](const Sample& x) {
                         return x.whole && x.want.S.norm() > 0;
                       })};
    for (const Sample& x : samples_) add(error_, x, x.want, x.got);
    Squares plain{};
    for (const Sample& x : samples_) add(plain, x, x.want, simulated(x, {.C = 0}, false));
    for (std::size_t i : {0, 1}) noise_[i] = kFp32Noise * kFp32Noise * plain[i];
  }

  /// The models that come closest, best first; they are fitted to `all_`.
  void fit(std::vector<Model> models) {
    std::erase_if(models, [&](const Model& m) { return m.grade == "state-bf16" && state_is_wide_; });
    std::vector<Fit> fits(models.size());
    parallel_for(static_cast<Index>(models.size()), threads_, [&](Index i) {
      Fit& f = fits[static_cast<std::size_t>(i)];
      f.model = models[static_cast<std::size_t>(i)];
      for (const Sample& x : samples_) {
        const Output<double> m = simulated(x, f.model.how, true);
        add(f.error, x, x.want, m), add(f.residual, x, m, x.got);
      }
      double outputs = 0;
      for (std::size_t k : {0, 1}) {
        if (!compared_[k]) continue;
        const double share = ratio_of(std::max(0., f.residual[k] - noise_[k]), std::max(error_[k], noise_[k]));
        f.unexplained += share, f.most = std::max(f.most, share), outputs += 1;
      }
      f.unexplained /= outputs;
    });
    std::ranges::move(fits, std::back_inserter(all_));
    std::ranges::stable_sort(all_, {}, &Fit::unexplained);
  }

  bool usable() const { return !samples_.empty() && std::isfinite(error_[0] + error_[1]); }
  const Fit& best() const { return all_.front(); }
  bool recognised() const { return best().unexplained < kRecognised && best().most < kRecognisedInEach; }

  /// The coarsest of the classes that cannot be told apart, and its best fit.
  const Fit& by_pattern() const {
    return *coarsest([&](const Fit& f) { return f.unexplained <= kAlike * best().unexplained + kAlikeAtLeast; });
  }

  /// The coarsest class that makes errors of this size; where none does, the one that comes nearest.
  const Fit& by_size() const {
    const Fit* same = coarsest([&](const Fit& f) { return distance(f) < std::log(kSameSize); });
    return same ? *same : *std::ranges::min_element(all_, {}, [&](const Fit& f) { return distance(f); });
  }

  /// The closest build of each class, finest class first.
  std::vector<ClassError> classes() const {
    std::vector<ClassError> out;
    const auto lanes = static_cast<double>(samples_.size());
    for (const std::string_view grade : kGrades)
      if (const auto f = std::ranges::find(all_, grade, [](const Fit& x) { return x.model.grade; }); f != all_.end()) {
        out.push_back({std::string(grade), text(f->model.how), std::sqrt(f->error[0] / lanes), {}, 1 - f->unexplained});
        if (compared_[1]) out.back().final_state = std::sqrt(f->error[1] / lanes);
      }
    return out;
  }

  /// What the error of a model owes most to, by leaving one rounding out at a time.
  std::vector<Dominant> dominant(const Fit& of) const {
    struct Without {
      std::string what;
      Schedule how;
      bool store = true;
      Squares error{};
    };
    std::vector<Without> without{{"", of.model.how, false}, {"beta", of.model.how}};
    without[1].how.beta = kFp64;
    for (int p = 0; p < static_cast<int>(Point::count); ++p) {
      without.push_back({std::string(name(static_cast<Point>(p))), of.model.how});
      without.back().how.exact |= only(static_cast<Point>(p));
      if (of.model.how.C == 0 && p != static_cast<int>(Point::state)) without.pop_back();
    }
    parallel_for(static_cast<Index>(without.size()), threads_, [&](Index i) {
      Without& w = without[static_cast<std::size_t>(i)];
      for (const Sample& x : samples_) add(w.error, x, x.want, simulated(x, w.how, w.store));
    });
    std::vector<Dominant> out;
    for (std::size_t k : {0, 1}) {
      if (!compared_[k] || of.error[k] == 0) continue;
      const auto best = std::ranges::min_element(without, {}, [&](const Without& w) { return w.error[k]; });
      const double share = 1 - best->error[k] / of.error[k];
      if (share < 0.05) continue;  // fp32 sums, or many roundings alike
      const std::string last = std::string("the ") + std::string(s_.format_of(kOutputs[k]).name) + " of " + kOutputs[k];
      out.push_back({kOutputs[k], best->what.empty() ? last : best->what, share});
    }
    return out;
  }

 private:
  /// Of the fits that some condition holds for. A state in bf16 is a fault: it is named only where nothing else fits.
  template <class Condition> const Fit* coarsest(Condition holds) const {
    const Fit* to = nullptr;
    const auto rank = [](const Fit& f) { return f.model.grade == "state-bf16" ? -1 : coarseness(f.model.grade); };
    for (const Fit& f : all_)
      if (holds(f) && (!to || rank(f) > rank(*to))) to = &f;
    return to;
  }
  /// How far the sizes of the errors are apart: the logarithm of their ratio, of the output where it is larger.
  double distance(const Fit& f) const {
    double most = 0;
    for (std::size_t k : {0, 1})
      if (compared_[k]) most = std::max(most, std::abs(std::log(floored(error_[k], k) / floored(f.error[k], k))) / 2);
    return most;
  }
  double floored(double square, std::size_t k) const { return std::max({square, noise_[k], kTiny}); }
  static void add(Squares& to, const Sample& x, const Output<double>& a, const Output<double>& b) {
    if (const double size = x.want.O.squaredNorm(); size > 0) to[0] += (b.O - a.O).squaredNorm() / size;
    if (const double size = x.want.S.squaredNorm(); size > 0 && x.whole && b.S.size() > 0)
      to[1] += (b.S - a.S).squaredNorm() / size;
  }
  Output<double> simulated(const Sample& x, const Schedule& how, bool store) const {
    Output<double> out{Mat<double>::Zero(x.want.O.rows(), x.want.O.cols()),
                       Mat<double>::Zero(x.want.S.rows(), x.want.S.cols())};
    for (const auto& [st, channel] : x.streams) place(out, simulate<float>(st, s_.scale(), how), channel);
    if (!store) return out;
    out.O = stored(out.O, s_.format_of("o"));
    if (s_.has_final_state()) out.S = stored(out.S, s_.format_of("final_state"));
    return out;
  }
  const Subject& s_;
  std::vector<Sample> samples_;
  bool state_is_wide_;
  int threads_;
  std::array<bool, 2> compared_{};
  Squares error_{}, noise_{};  ///< of the kernel; of fp32 sums
  std::vector<Fit> all_;
};

std::string percent(double x) { return std::to_string(std::lround(100 * x)) + " %"; }

}  // namespace

void grade(const Subject& s, const Evidence& e, int threads, FileVerdict& v) {
  if (s.operands().p > kFp32.p || v.outputs.empty()) return;
  if (v.verdict == Verdict::untrusted) return;
  const bool state_is_wide = s.has_final_state() && s.format_of("final_state").p == kFp32.p && !e.bf16.certain();
  Grader g(s, state_is_wide, threads);
  if (!g.usable()) return;
  const Format& operand = s.operands();
  g.fit(builds(operand));
  const Model base =
      g.recognised() ? g.best().model : Model{by_inverse(operand), {.operand = operand, .inverse = operand}};
  g.fit(variants(base, operand));
  v.classes = g.classes();
  if (!g.recognised() && v.verdict == Verdict::failed) {
    v.grade = "worse", v.grade_reason = "its error is like that of no class";
    return;
  }
  const Fit& like = g.recognised() ? g.by_pattern() : g.by_size();
  v.grade = like.model.grade;
  v.grade_reason = g.recognised() ? text(like.model.how) + ": " + percent(1 - like.unexplained) +
                                        " of its square error is that of this model, number by number"
                                  : "an error of about the size that " + text(like.model.how) + " makes";
  v.dominant = g.dominant(like);
}

}  // namespace delta
