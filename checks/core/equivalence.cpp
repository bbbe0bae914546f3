// SPDX-License-Identifier: Apache-2.0
#include "checks/core/equivalence.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "checks/core/measure.hpp"
#include "checks/core/parallel_for.hpp"

namespace delta {
namespace {

bool chosen(const std::vector<std::string>& list, std::string_view name) {
  return list.empty() || std::ranges::find(list, name) != list.end();
}

/// p bits with a double's range: only the roundings differ between such formats.
constexpr Format unbounded(int p) { return {"draw", p, kFp64.emin, kFp64.emax}; }

// Inputs have 8 significant bits, so that in wide formats the first products are exact: narrow formats are drawn near
// their own p. None is drawn at the p of a scalar that is judged, and one is drawn a bit below each of 8, 11 and 24:
// where a sum stands still because what is added is less than half a unit of it, it stands still there too.
constexpr int kNarrow = 15;
constexpr Format kNarrowDraws[] = {unbounded(7),  unbounded(9),  unbounded(10),
                                   unbounded(12), unbounded(13), unbounded(14)};
constexpr Format kWideDraws[] = {unbounded(19), unbounded(20), unbounded(21),
                                 unbounded(22), unbounded(23), unbounded(25)};

std::span<const Format> draws_for(int p) { return p > kNarrow ? kWideDraws : kNarrowDraws; }

/// Where two exact results first differ; empty if they are equal.
template <Ring T> std::string difference(const Result<T>& want, const Result<T>& got) {
  std::ostringstream out;
  auto search = [&](const char* tensor, std::size_t lane, const Mat<T>& a, const Mat<T>& b) {
    for (Index r = 0; r < a.rows() && out.str().empty(); ++r)
      for (Index c = 0; c < a.cols() && out.str().empty(); ++c)
        if (!(a(r, c) == b(r, c)))
          out << tensor << '[' << r << ',' << c << "] of lane " << lane << ": want " << a(r, c) << ", got " << b(r, c);
  };
  for (std::size_t n = 0; n < want.size(); ++n) {
    search("o", n, want[n].O, got[n].O);
    search("final_state", n, want[n].S, got[n].S);
  }
  return out.str();
}

/// "first bad token t=9 (chunk 1, row 1); worst o[9,2] of lane 0: want 1.25, got 1.24"
std::string place(const Distance& d, Index C) {
  std::ostringstream out;
  if (const auto& b = d.first_bad)
    out << "first bad token t=" << b->row << " (chunk " << b->row / C << ", row " << b->row % C << ") of lane "
        << b->lane << "; ";
  if (const auto& w = d.worst) {
    out.precision(8);
    out << "worst " << w->tensor << '[' << w->row << ',' << w->column << "] of lane " << w->lane << ": want " << w->want
        << ", got " << w->got;
  }
  return out.str();
}

/// One rule on one family at one size, every form and scalar.
class Case {
 public:
  Case(const Rule& rule, const Family& family, const Size& size, std::uint64_t seed)
      : rule_(rule), family_(family), size_(size), seed_(seed), p_(draw(rule.info, family, size, seed)) {}

  Row blank(std::string_view form, std::string_view scalar, std::string_view kind) const {
    return {.rule = std::string(rule_.info.id),
            .form = std::string(form),
            .against = "paper",
            .scalar = std::string(scalar),
            .family = std::string(family_.name),
            .shape = size_.text(),
            .kind = std::string(kind),
            .seed = seed_};
  }
  /// Asked of a problem that has a token; of a mutant, whether it can be made at this size.
  bool can(std::string_view form) const {
    if (find_mutant<double>(form)) return applies(rule_, form, p_);
    return applies(rule_, form, draw(rule_.info, family_, Shape{.d_k = 2, .d_v = 2, .n_h = 2, .offsets = {}}, seed_));
  }

  /// Equality with the printed formula, on the family's numbers and at a random point of the ring.
  template <Ring T> Row exact(std::string_view form) const {
    Row row = blank(form, Scalar<T>::name, "exact");
    if (find_mutant<double>(form) && !find_mutant<T>(form)) {
      row.reason = "the mistake needs an exponential, a root or a rounding";
      return row;
    }
    row.where = differ(form, over<T>(p_));
    const bool fractions_grow = std::is_same_v<T, Rational> && size_.shape.T > 16;
    if (row.where.empty() && !fractions_grow) row.where = differ(form, generic<T>(p_, seed_));
    row.verdict = row.where.empty() ? Verdict::passed : Verdict::failed;
    if (row.verdict == Verdict::failed) row.ratio = INFINITY, row.reason = "not equal to the printed formula";
    return row;
  }

  /// Scalars wider than the formats: their range holds everything.
  template <Real T, Real J> Row ratio(std::string_view form, std::string_view scalar, double unit) {
    return judged<T, J>(form, scalar, unit, kFp64.p);
  }

  /// A format of p bits. Its range may be too small for the inputs or for what is computed from them: then the same p
  /// with a double's range passes where it fails, and the case says nothing about the form.
  Row rounded(std::string_view form, const Format& f) {
    if (!holds(f)) return skipped(form, f.name, "the inputs are outside its range");
    auto in = [&](const Format& g) {
      const Working::Scope scope(g);
      return judged<AnyFormat, DoubleDouble>(form, f.name, f.unit(), f.p);
    };
    const Row row = in(f);
    if (row.verdict == Verdict::passed || row.verdict == Verdict::untrusted) return row;
    const Row wide = in(unbounded(f.p));
    if (wide.verdict < row.verdict) return skipped(form, f.name, "an intermediate is outside its range");
    return row;
  }

  /// The recurrence in double, by which dumps are judged, against balls.
  Row proved() {
    Row row = blank("recurrent", "double", "proof");
    row.against = "ball";
    const bool equality = family_.judge == Judge::equality;
    const Expected e = equality ? Expected{0, 0} : expected("recurrent", kFp64.p);  // in units of u
    const double u = kFp64.unit();
    if (!(std::max(e.o, e.state) * u < kIllPosed)) {
      row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
      return row;
    }
    certify(row, rule_, p_, compute<double>(rule_, "recurrent", size_.C, p_), {e.o * u, e.state * u});
    return row;
  }

  Row skipped(std::string_view form, std::string_view scalar, std::string_view reason) const {
    Row row = blank(form, scalar, "ratio");
    row.reason = reason;
    return row;
  }

 private:
  template <Ring T> std::string differ(std::string_view form, const Problem<T>& p) const {
    return difference<T>(compute_paper<T>(rule_, p), compute<T>(rule_, form, size_.C, p));
  }

  template <Real J> const Result<J>& wanted() {
    auto& want = std::get<Result<J>>(wanted_);
    if (want.empty()) want = compute_paper<J>(rule_, over<J>(p_));
    return want;
  }

  /// The error of the result over the error that this form makes in that precision.
  template <Real T, Real J> Row judged(std::string_view form, std::string_view scalar, double unit, int p) {
    Row row = blank(form, scalar, "ratio");
    const Expected e = expected(form, p);  // in units of u
    if (!(std::max(e.o, e.state) * unit < kIllPosed)) {
      row.verdict = Verdict::untrusted, row.ratio = NAN, row.reason = "ill-posed in this precision";
      return row;
    }
    const bool equality = family_.judge == Judge::equality;
    const Expected allowed = equality ? Expected{0, 0} : Expected{e.o * unit, e.state * unit};
    const Comparison c = compare(wanted<J>(), compute<T>(rule_, form, size_.C, over<T>(p_)), allowed);
    row.ratio = c.ratio, row.verdict = c.verdict, row.reason = c.reason;
    if (c.verdict == Verdict::failed) row.where = place(c.distance, size_.C);
    return row;
  }

  /// Each precision's draws are made once for a form. What is expected of a mutant is what a right form makes.
  Expected expected(std::string_view form, int p) {
    const bool wide = p > kNarrow;
    if (const Mutant<double>* m = find_mutant<double>(form)) form = m->chunked ? "one_solve" : "recurrent";
    const auto [known, is_new] = expected_.try_emplace({std::string(form), wide});
    if (is_new) known->second = expected_error(rule_, form, size_.C, p_, wanted<DoubleDouble>(), p);
    return known->second;
  }

  bool holds(const Format& f) const {
    auto fits = [&](double x) { return std::isnan(x) || f.round(x) == x; };
    bool all = fits(p_.scale);
    for (const Tensor<double>* x : {&p_.q, &p_.k, &p_.v, &p_.beta, &p_.alpha, &p_.lambda})
      all = all && std::ranges::all_of(x->data, fits);
    for (const Tensor<double>& x : p_.inputs) all = all && std::ranges::all_of(x.data, fits);
    for (const Mat<double>& S : p_.S0) all = all && std::ranges::all_of(S.reshaped(), fits);
    return all;
  }

  const Rule& rule_;
  const Family& family_;
  Size size_;
  std::uint64_t seed_;
  Problem<double> p_;
  std::tuple<Result<Rational>, Result<DoubleDouble>> wanted_;
  std::map<std::pair<std::string, bool>, Expected> expected_;
};

/// Calls work(i) for i < n on all cores and done(i, result) in the order of i.
template <class R>
void in_order(std::size_t n, const std::function<R(std::size_t)>& work,
              const std::function<void(std::size_t, R)>& done) {
  std::vector<std::optional<R>> results(n);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::condition_variable finished;
  std::vector<std::jthread> pool;
  std::exception_ptr error;
  for (int t = 0; t < cores(); ++t)
    pool.emplace_back([&] {
      for (std::size_t i; (i = next++) < n;) {
        std::optional<R> r;
        std::exception_ptr problem;
        try {
          r = work(i);
        } catch (...) {
          problem = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        if (problem) error = problem, next = n;
        results[i] = std::move(r);
        finished.notify_one();
      }
    });
  for (std::size_t i = 0; i < n; ++i) {
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] { return error || results[i]; });
    if (error) {
      lock.unlock();
      pool.clear();
      std::rethrow_exception(error);
    }
    R r = std::move(*results[i]);
    results[i].reset();
    lock.unlock();
    done(i, std::move(r));
  }
}

/// One unit of work: a case, the laws of a rule on a family, or the proof of a case.
struct Job {
  const Rule* rule;
  const Family* family;
  Size size;
  bool laws = false, proof = false;
  /// Which scalars: all of them, those that a row of the sweep adds something in, those that are fast enough for a
  /// large size, or the prime field for the size that kernels use.
  enum Scalars { all, sweep, large, gf61 } scalars = all;
};

/// The forms that a selection runs: all of them, or those that it names, and mutants only by name.
std::vector<std::string> forms_of(const Selection& what) {
  std::vector<std::string> forms = form_names();
  std::erase_if(forms, [&](const std::string& form) { return !chosen(what.forms, form); });
  for (const std::string& name : what.forms)
    if (find_mutant<double>(name)) forms.push_back(name);
  return forms;
}

std::vector<Row> run_case(const Selection& what, const Job& job) {
  std::vector<Row> rows;
  Case c(*job.rule, *job.family, job.size, what.seed);
  for (const std::string& form : forms_of(what)) {
    const std::string reason =
        c.can(form) ? too_large(form, job.size) : std::string("the form does not apply to this rule");
    auto row = [&](std::string_view scalar, int up_to, auto compute) {
      if (!chosen(what.scalars, scalar) || job.scalars > up_to) return;
      rows.push_back(reason.empty() ? compute() : c.skipped(form, scalar, reason));
    };
    row("rational", Job::sweep, [&] { return c.exact<Rational>(form); });
    row("gf61", Job::gf61, [&] { return c.exact<GF61>(form); });
    row("dual", Job::all, [&] { return c.exact<Dual<GF61>>(form); });
    row("mp50", Job::all, [&] { return c.ratio<Mp50, Rational>(form, "mp50", Scalar<Mp50>::unit); });
    row("dd", Job::all, [&] { return c.ratio<DoubleDouble, Rational>(form, "dd", Scalar<DoubleDouble>::unit); });
    row("double", Job::large, [&] { return c.ratio<double, DoubleDouble>(form, "double", Scalar<double>::unit); });
    for (const Format* f : {&kFp32, &kTf32, &kFp16, &kBf16})
      row(f->name, Job::large, [&] { return c.rounded(form, *f); });
  }
  return rows;
}

std::vector<Row> run_laws(const Selection& what, const Job& job) {
  std::vector<Row> rows;
  Size size = job.size;
  size.shape.offsets.clear();  // the laws about packed sequences pack for themselves
  const Case c(*job.rule, *job.family, size, what.seed);
  for (const std::string& form : forms_of(what)) {
    if (!c.can(form) || !too_large(form, size).empty()) continue;
    for (const Law& law : laws())
      for (const auto& [scalar, check] : law.checks) {
        if (!chosen(what.laws, law.name) || !chosen(what.scalars, scalar)) continue;
        if (find_mutant<double>(form) && scalar == Scalar<GF61>::name && !find_mutant<GF61>(form)) continue;
        const LawOutcome outcome = check({*job.rule, form, *job.family, size, what.seed});
        if (!outcome) continue;
        Row row = c.blank(form, scalar, law.bound && scalar != "rational" ? "ratio" : "exact");
        row.against = "law: " + std::string(law.name);
        row.ratio = *outcome;
        row.verdict = judge(row.ratio);
        if (row.verdict == Verdict::failed) row.reason = "broken: " + std::string(law.statement);
        rows.push_back(std::move(row));
      }
  }
  return rows;
}

/// What a selection runs, in order. By default each rule and family run at the base size and at one row of the sweep,
/// a different one for each pair, so that every rule and every family meet many of them; `full` runs them all. A rule
/// and a family meet the same row whatever else is selected.
std::vector<Job> jobs(const Selection& what, const std::vector<const Rule*>& among) {
  std::vector<Job> out;
  const Size base = Size::parse(what.quick ? kQuickSize : kBaseSize);
  const bool prove = what.prove && chosen(what.forms, "recurrent") && chosen(what.scalars, "double");
  std::size_t turn = 0;
  for (const Rule* rule : among) {
    for (const Family& family : families()) {
      if (!family.concerns(rule->info)) continue;
      const std::size_t row = turn++ % sweep().size();
      if (!chosen(what.rules, rule->info.id) || !chosen(what.families, family.name)) continue;
      auto at = [&](const Size& z) { return family.at ? family.at(z) : z; };
      const bool first = &family == families().data();
      if (what.size) {
        out.push_back({.rule = rule, .family = &family, .size = *what.size, .laws = !what.laws.empty()});
        if (prove) out.push_back({.rule = rule, .family = &family, .size = *what.size, .proof = true});
        continue;
      }
      if (what.laws.empty()) {
        out.push_back({.rule = rule, .family = &family, .size = at(base)});
        if (prove) out.push_back({.rule = rule, .family = &family, .size = at(Size::parse(kQuickSize)), .proof = true});
        for (std::size_t i = 0; i < sweep().size() && !what.quick; ++i)
          if (what.full || i == row)
            out.push_back({.rule = rule,
                           .family = &family,
                           .size = at(Size::parse(sweep()[i].size)),
                           .scalars = sweep()[i].large ? Job::large
                                      : what.full      ? Job::all
                                                       : Job::sweep});
        if (first && !what.quick)
          out.push_back({.rule = rule, .family = &family, .size = Size::parse(kRealSize), .scalars = Job::gf61});
      }
      const bool usual = first || family.name == "alpha_zero" || family.name == "repeated_keys";
      if (usual || what.full || !what.laws.empty() || !what.families.empty())
        out.push_back({.rule = rule, .family = &family, .size = base, .laws = true});
    }
  }
  return out;
}

}  // namespace

Expected expected_error(const Rule& rule, std::string_view form, Index C, const Problem<double>& p,
                        const Result<DoubleDouble>& exact, int bits) {
  Expected largest{NAN, NAN};  // until there is a draw
  for (const Format& f : draws_for(bits)) {
    const Working::Scope scope(f);
    const Distance d = distance(exact, compute<AnyFormat>(rule, form, C, over<AnyFormat>(p)));
    if (!(std::max(d.o, d.state) < kIllPosed)) continue;
    largest.o = std::fmax(largest.o, d.o / f.unit());
    largest.state = std::fmax(largest.state, d.state / f.unit());
  }
  constexpr double few_draws = 2, last_rounding = 1;
  return {few_draws * largest.o + last_rounding, few_draws * largest.state + last_rounding};
}

void certify(Row& row, const Rule& rule, const Problem<double>& p, const Result<double>& got, const Expected& bound) {
  row.proof = prove(rule, p, got), row.bound = bound;
  row.ratio = 0;
  for (const Proved& t : row.proof.outputs)
    row.ratio = std::max(row.ratio, ratio_of(t.error.upper, row.bound_of(t.tensor)));
  row.verdict = row.proof.sharp ? judge(row.ratio) : Verdict::untrusted;
  if (!row.proof.sharp) row.reason = "no number of bits made the balls small";
  if (row.verdict == Verdict::failed) row.reason = "the proved error is beyond its bound";
}

bool applies(const Rule& rule, std::string_view form, const Problem<double>& p) {
  const Mutant<double>* m = find_mutant<double>(form);
  bool (*const asked)(const Stream<double>&) = m ? m->concerns : find_form<double>(form)->applies;
  if (!asked) return true;
  Index n = 0;
  while (n + 1 < p.shape.sequences() && p.shape.length(n) == 0) ++n;  // an empty sequence shows no micro-step
  bool all = true;
  each_stream<double>(rule.info, rule.over<double>(), p, n, 0,
                      [&](const Stream<double>& s, Index) { all = all && asked(s); });
  return all;
}

const std::vector<std::string>& scalar_names() {
  static const std::vector<std::string> names{"rational", "gf61", "dual", "mp50", "dd",
                                              "double",   "fp32", "tf32", "fp16", "bf16"};
  return names;
}

const std::vector<std::string>& form_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> n;
    for (const auto& f : kForms<double>) n.emplace_back(f.id);
    return n;
  }();
  return names;
}

double schwartz_zippel(const Size& size) {
  // The degree of an output in the drawn numbers: a micro-step multiplies by at most beta x y and the decays of a
  // chunk, and a wrong form may do so once more for every row of its chunk.
  const double m = static_cast<double>(std::max<Index>(size.shape.n_h, 2)), steps = m * double(size.shape.T);
  return (steps * (m * double(size.C) + 6) + 4) / static_cast<double>(GF61::p);
}

std::string too_large(std::string_view form, const Size& size) {
  Index tokens = 0;
  for (Index n = 0; n < size.shape.sequences(); ++n) tokens = std::max(tokens, size.shape.length(n));
  const Mutant<double>* m = find_mutant<double>(form);
  auto* const largest = m ? (m->chunked ? &one_chunk : nullptr) : find_form<double>(form)->largest;
  const Index side = largest ? largest(tokens, size.C) : 0;
  if (side <= kLargestSquare) return {};
  const std::string n = std::to_string(side), most = std::to_string(kLargestSquare);
  return std::string(form) + " holds a matrix of " + n + " x " + n + " numbers, expected at most " + most + " x " +
         most + "; try a smaller " + (largest == &one_chunk ? "C" : "T") + ", or --form recurrent";
}

std::string disagreement(const Rule& rule, std::uint64_t seed) {
  const Size size = Size::parse(kBaseSize);
  const Problem<GF61> p = generic<GF61>(draw(rule.info, families().front(), size, seed), seed);
  const Result<GF61> want = compute_paper<GF61>(rule, p), got = compute<GF61>(rule, "recurrent", size.C, p);
  for (std::size_t lane = 0; lane < want.size(); ++lane)
    for (Index t = 0; t < want[lane].O.rows(); ++t)
      if (want[lane].O.row(t) != got[lane].O.row(t))
        return "steps and paper_step disagree, first at token " + std::to_string(t);
  return {};
}

void check_equivalence(const Selection& what, const std::function<void(const Row&)>& report,
                       const std::function<void(std::size_t, std::size_t)>& progress,
                       const std::vector<const Rule*>& among) {
  std::vector<Job> all = jobs(what, among);
  for (const Rule* rule : among) {
    const auto of_rule = [&](const Job& job) { return job.rule == rule; };
    if (std::ranges::none_of(all, of_rule)) continue;
    const std::string reason = disagreement(*rule, what.seed);
    if (reason.empty()) continue;
    Row row = Case(*rule, families().front(), Size::parse(kBaseSize), what.seed).blank("recurrent", "gf61", "exact");
    row.verdict = Verdict::failed, row.ratio = INFINITY, row.reason = reason + "; its forms were not run";
    report(row);
    std::erase_if(all, of_rule);
  }
  in_order<std::vector<Row>>(
      all.size(),
      [&](std::size_t i) {
        const Job& job = all[i];
        if (job.proof) return std::vector<Row>{Case(*job.rule, *job.family, job.size, what.seed).proved()};
        return job.laws ? run_laws(what, job) : run_case(what, job);
      },
      [&](std::size_t i, std::vector<Row> rows) {
        for (const Row& r : rows) report(r);
        if (progress) progress(i + 1, all.size());
      });
}

}  // namespace delta
